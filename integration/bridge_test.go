//go:build linux

package integration

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/internal/status"
	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbfixed"
	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func init() { roles["bridged"] = playBridged }

// bars are the bridges between the machines of a test. A file stands for the memory of a PCI
// function, which stays the same however often a process comes and goes, and an eventfd for
// each interrupt. The processes have nothing else in common.
type bars struct {
	files []*os.File // the memory, and an interrupt for either end of each wire
	side  int        // bytes of memory of each side: a header page and the window
}

func newBars(t *testing.T, wires, window int) *bars {
	t.Helper()
	b := &bars{side: window + ntbfixed.PageSize}
	memory, err := unix.MemfdCreate("bar", unix.MFD_CLOEXEC)
	require.NoError(t, err)
	require.NoError(t, unix.Ftruncate(memory, int64(2*wires*b.side)))
	b.files = append(b.files, os.NewFile(uintptr(memory), "bar"))
	for range 2 * wires {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
		require.NoError(t, err)
		b.files = append(b.files, os.NewFile(uintptr(fd), "interrupt"))
	}
	t.Cleanup(func() {
		for _, f := range b.files {
			require.NoError(t, f.Close())
		}
	})
	return b
}

// barFD is the descriptor of the memory in a process that was given the bridges. Those of the
// interrupts follow.
const barFD = 3

// endOf returns which end of a wire is this node's: the one on its right side is the first. In
// a mesh it is that of the lower number.
func endOf(w sdp.Wire) int {
	if w.Side == sdp.SideLeft || w.Side == sdp.SideDirect && w.Node > w.Neighbour {
		return 1
	}
	return 0
}

// attachBar returns an end of a wire. Each side has so many bytes of memory, of which this one maps
// the first n.
func attachBar(w sdp.Wire, end, side, n int) (ntb.Attachment, error) {
	memory := func(end int) ntbfixed.Memory {
		return ntbfixed.Memory{FD: barFD, Offset: int64((2*(w.Number-1) + end) * side), Len: n}
	}
	bell := func(end int) int { return barFD + 1 + 2*(w.Number-1) + end }
	fd, err := unix.FcntlInt(uintptr(bell(end)), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	// Both the poller here and the one that rings must not block.
	if err := errors.Join(unix.SetNonblock(bell(end), true), unix.SetNonblock(bell(1-end), true)); err != nil {
		return nil, err
	}
	interrupts := os.NewFile(uintptr(fd), "interrupts")
	one := binary.NativeEndian.AppendUint64(nil, 1)
	return ntbfixed.Attach(ntbfixed.Config{
		Own: memory(end), Peer: memory(1 - end), Kind: ntb.Cacheable,
		Interrupt: func(uint32, int) { _, _ = unix.Write(bell(1-end), one) }, // it rings already if there is no room
		Wait: []func() error{func() error {
			var count [8]byte
			_, err := interrupts.Read(count[:])
			return err
		}},
		Stop: func() { interrupts.Close() },
	})
}

// heldSessions keeps the sessions of a process when they have ended, as an application does
// that holds on to their memory, and goes on storing through them.
type heldSessions struct {
	stop chan struct{}  // closed by end
	wg   sync.WaitGroup // storms

	// mu guards the following.
	mu     sync.Mutex
	all    []ntb.Device
	open   int       // sessions that the fabric has not closed
	closed sync.Cond // signalled when it closes one; L is mu
}

func newHeldSessions() *heldSessions {
	h := &heldSessions{stop: make(chan struct{})}
	h.closed.L = &h.mu
	return h
}

// heldSession is a device that ends without giving its memory back.
type heldSession struct {
	ntb.Device
	storm, closed func()
}

func (s heldSession) Disable() { s.Device.Disable(); s.storm() }

func (s heldSession) Close() error {
	s.Disable()
	s.closed()
	return nil
}

func (h *heldSessions) hold(dev, _ ntb.Device) (a, b ntb.Device) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, dev)
	h.open++
	return heldSession{dev, sync.OnceFunc(func() { h.wg.Go(func() { h.store(dev) }) }), sync.OnceFunc(h.release)}, nil
}

// release is called when the fabric closes a session.
func (h *heldSessions) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open--
	h.closed.Signal()
}

// store stores to all that an old session could reach.
func (h *heldSessions) store(dev ntb.Device) {
	out := dev.Outbound()
	ones := []byte(strings.Repeat("\xee", 200))
	for {
		select {
		case <-h.stop:
			return
		case <-time.After(100 * time.Microsecond):
		}
		for range 20 {
			out.Write(rand.IntN(out.Len()-len(ones)), ones)
			out.Publish64(8*rand.IntN(out.Len()/8), ^uint64(0))
		}
		for i := range dev.Caps().Scratchpads {
			dev.SetPeerSpad(i, ^uint32(0))
		}
		dev.RingDoorbell(0)
	}
}

// end stops the stores and gives the memory back, when the fabric needs it no more. That is
// some time after its last connection is closed.
func (h *heldSessions) end() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.open > 0 {
		h.closed.Wait()
	}
	close(h.stop)
	h.wg.Wait()
	var errs []error
	for _, dev := range h.all {
		errs = append(errs, dev.Close())
	}
	return errors.Join(errs...)
}

// playBridged is a process of a machine that bridges join to others. Its fabric is that of
// SDP_FABRIC. Its arguments are how much memory a side has, how much of it this process maps, and
// the end of the wire that it takes, or -1 for the one that is right. It echoes what arrives at port 7, serves
// HTTP at port 80, and does what the test says, with the functions of package sdp:
//
//	get NODE N    get N bytes by HTTP
//	dial NODE     fail to dial port 7
//	keep NODE     open a connection to port 7 and keep it
//	use N         send N bytes over that one and get them back
//	refused       tell why this process has refused another one
func playBridged(p *self) error {
	var side, mapped, end int
	if _, err := fmt.Sscan(strings.Join(p.args, " "), &side, &mapped, &end); err != nil {
		return err
	}
	held := newHeldSessions()
	f, err := sdp.OpenWith("", sdp.Devices{
		Attach: func(w sdp.Wire) (ntb.Attachment, error) {
			if end < 0 {
				return attachBar(w, endOf(w), side, mapped)
			}
			return attachBar(w, end, side, mapped)
		},
		Wrap: held.hold,
	})
	if err != nil {
		p.printf("no node: %v", err)
		return nil
	}
	defer func() {
		if err := errors.Join(f.Close(), held.end()); err != nil {
			p.printf("end: %v", err)
		}
	}()
	served := sync.WaitGroup{}
	defer served.Wait()
	echo, err := sdp.Listen("sdp", ":7")
	if err != nil {
		return err
	}
	defer echo.Close()
	served.Go(func() { serveEcho(echo) })
	ln, err := sdp.Listen("sdp", ":80")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.ParseInt(strings.Trim(r.URL.Path, "/"), 10, 64)
		_, _ = io.CopyN(w, newStream(1), n) // the client finds what is missing
	})}
	defer server.Close()
	served.Go(func() { _ = server.Serve(ln) })
	p.printf("ready")

	var kept net.Conn
	defer func() {
		if kept != nil {
			kept.Close()
		}
	}()
	for {
		line, ok := p.readLine()
		if !ok {
			return nil
		}
		answer := "ok"
		switch w := words(line); w[0] {
		case "get":
			err = get(w[1], w[2])
		case "dial":
			var c net.Conn
			if c, err = sdp.DialTimeout("sdp", w[1]+":7", testTimeout/2); err == nil {
				c.Close()
				err = errors.New("connected")
			}
		case "keep":
			if kept != nil {
				kept.Close()
			}
			kept, err = sdp.Dial("sdp", w[1]+":7")
		case "use":
			err = there(kept.(*sdp.Conn), w[1])
		case "refused":
			answer = f.Stats().Refused.Last
		}
		if err != nil {
			answer = err.Error()
		}
		p.printf("%s", answer)
	}
}

// serveEcho sends back what comes. When the listener is closed, it closes all connections.
func serveEcho(ln net.Listener) {
	var serving sync.WaitGroup
	defer serving.Wait()
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		serving.Go(func() { _, _ = io.Copy(c, c) }) // a test may kill the other side
	}
}

// get gets bytes by HTTP over a connection of its own.
func get(node, count string) error {
	n, err := strconv.ParseInt(count, 10, 64)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout/2)
	defer cancel()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
		c, err := sdp.DialContext(ctx, "sdp", address)
		if err == nil {
			err = wantSDP(c)
		}
		return c, err
	}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s:80/%d", node, n), nil)
	if err != nil {
		return err
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return newStream(1).readExactly(response.Body, n)
}

// machines are the nodes of a fabric, each a process of what counts as a machine of its own:
// its fabric has a name of its own, so no directory and no socket leads to another one.
type machines struct {
	*ring
	bars *bars
}

func newMachines(t *testing.T, topology string, n, window int) *machines {
	return &machines{
		ring: &ring{t: t, topology: topology, name: fabrictest.Name(t), n: n, nodes: make([]*peer, n+1)},
		bars: newBars(t, n, window),
	}
}

// spec returns the fabric of a node, with options that begin with an &.
func (m *machines) spec(node int, options string) string {
	return fmt.Sprintf("%s:%s-%d?node=%d&nodes=%d%s", m.topology, m.name, node, node, m.n, options)
}

// start starts a process with a fabric and gives it the bridges, of which it takes that end, or
// the one that is right if end is -1, and maps so much of each side's memory.
func (m *machines) start(s string, end, mapped int) *peer {
	m.t.Helper()
	_, rest, _ := strings.Cut(s, ":")
	name, _, _ := strings.Cut(rest, "?")
	p := startPeer(m.t, "bridged", []string{strconv.Itoa(m.bars.side), strconv.Itoa(mapped), strconv.Itoa(end)}, func(c *exec.Cmd) {
		c.Env = append(c.Env, "SDP_FABRIC="+s)
		c.ExtraFiles = m.bars.files
	})
	m.t.Cleanup(func() {
		p.kill()
		require.NoError(m.t, spec.Remove(name))
	})
	return p
}

// begin starts the process of a node and waits until it listens.
func (m *machines) begin(node int, options string) {
	m.t.Helper()
	m.nodes[node] = m.start(m.spec(node, options), -1, m.bars.side)
	require.Equal(m.t, "ready", m.nodes[node].readLine())
}

// exchange has each node get something of each other one.
func (m *machines) exchange() {
	m.t.Helper()
	for a := 1; a <= m.n; a++ {
		for b := 1; b <= m.n; b++ {
			require.Equal(m.t, "ok", m.ask(a, "get node%d 300000", b), "node %d from node %d", a, b)
		}
	}
}

// mended waits until nodes 1 and 2 have tried again to make their link, which one of them has
// refused, and has them exchange something. Until then a dial fails for the reason of the last try.
func (m *machines) mended() {
	m.t.Helper()
	for node := 1; node <= 2; node++ {
		until(m.t, "the link is made", func() bool { return m.ask(node, "get node%d 1000", 3-node) == "ok" })
	}
	m.exchange()
}

// Two machines have nothing in common but a bridge, which their programs attach. One process
// after the other is killed and comes again. What has survived holds the sessions that have
// ended, and stores through them all the time.
func TestNothingButBridgesJoinsTwoMachines(t *testing.T) {
	topologies := []string{"ring", "line", "mesh"}
	for _, topology := range topologies[:long(3, 1)] {
		t.Run(topology, func(t *testing.T) {
			m := newMachines(t, topology, 2, 4<<20)
			m.begin(1, "")
			m.begin(2, "")
			m.exchange()
			for _, dies := range []int{2, 1, 2} {
				stays := 3 - dies
				require.Equal(t, "ok", m.ask(stays, "keep node%d", dies))
				require.Equal(t, "ok", m.ask(stays, "use 1000000"))
				m.nodes[dies].kill()
				require.Contains(t, m.ask(stays, "use 1000"), syscall.ECONNRESET.Error())
				m.begin(dies, "")
				m.exchange()
				require.Equal(t, "ok", m.ask(dies, "keep node%d", stays))
				require.Equal(t, "ok", m.ask(dies, "use 1000000"))
			}
			m.end()
		})
	}
}

// refusedDial checks that a process cannot dial a node, and that it says why, not only when the dial's
// time is over.
func refusedDial(t *testing.T, p *peer, node int, why ...string) {
	t.Helper()
	answer := p.ask(fmt.Sprintf("dial node%d", node))
	require.NotContains(t, answer, "timeout")
	require.NotContains(t, answer, "connected")
	said := p.ask("refused")
	for _, part := range why {
		require.Contains(t, answer, part)
		require.Contains(t, said, part)
	}
}

// ntbnet topology asks the nodes of its machine only. What these have learnt of other machines
// over the bridges is in its answer.
func TestTopologyShowsOtherMachines(t *testing.T) {
	m := newMachines(t, "line", 4, 1<<20)
	look := func(flags ...string) []byte {
		args := append([]string{"topology", "--fabric", m.topology + ":" + m.name + "-1"}, flags...)
		out, err := exec.Command(filepath.Join(programs, "ntbnet"), args...).Output()
		require.NoError(t, err)
		return out
	}
	states := func() (states string) {
		var v status.Fabric
		require.NoError(t, json.Unmarshal(look("--json"), &v))
		require.Len(t, v.Views, 1, "of this machine")
		for _, o := range v.Others {
			states += fmt.Sprintf("node%d ", o.Host)
		}
		for _, node := range v.Absent {
			states += fmt.Sprintf("no%d ", node)
		}
		for _, w := range v.Wires {
			states += fmt.Sprintf("%d-%d %s ", w.From, w.To, w.State)
		}
		return states
	}
	for _, c := range []struct {
		starts, dies int
		want         string
	}{
		{1, 0, "no2 no3 no4 1-2 absent 2-3 absent 3-4 absent "},
		{2, 0, "node2 no3 no4 1-2 up 2-3 absent 3-4 absent "},
		{3, 0, "node2 node3 no4 1-2 up 2-3 up 3-4 absent "},
		{4, 0, "node2 node3 node4 1-2 up 2-3 up 3-4 up "},
		{0, 4, "node2 node3 no4 1-2 up 2-3 up 3-4 absent "},
		{0, 2, "no2 no3 no4 1-2 absent 2-3 absent 3-4 absent "},
		{2, 0, "node2 node3 no4 1-2 up 2-3 up 3-4 absent "},
	} {
		if c.starts != 0 {
			m.begin(c.starts, "")
		}
		if c.dies != 0 {
			m.nodes[c.dies].kill()
			m.nodes[c.dies] = nil
		}
		var got string
		for end := time.Now().Add(testTimeout); got != c.want && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			got = states()
		}
		require.Equal(t, c.want, got)
	}
	text := string(look())
	require.Contains(t, text, "a line of 4 nodes, 1 running here")
	require.Regexp(t, `(?m)^node2 +on another machine$`, text)
	require.Regexp(t, `(?m)^node4 +not there$`, text)
	m.end()
}

// What does not fit is refused over the bridge, since nothing else joins the machines. Both sides
// say what differs. When it is mended on one side, the link comes up.
func TestWhatDoesNotFitIsRefusedOverABridge(t *testing.T) {
	const small, large = 256 << 10, 4 << 20
	for _, c := range []struct {
		name   string
		window int
		second string   // options of node 2
		first  []string // what node 1 says
		says   []string // what node 2 says
		mended string   // options of node 2 that fit; "-" if none do
	}{
		{"lanes", large, "&lanes=2", []string{"lanes, and slots of each: 1, 32 here, 2, 32 at node2.1"},
			[]string{"lanes, and slots of each: 2, 32 here, 1, 32 at node1.1"}, ""},
		{"frame", large, "&frame=4096", []string{"bytes in a frame: 67584 here, 4096 at"}, []string{"4096 here, 67584 at node1.1"}, ""},
		{"a window too small for the lanes", 2 << 20, "&lanes=8", []string{"1, 32 here, 8, 32 at node2.1"},
			[]string{"windows of 2097152 bytes, want at least 2236416 for lanes=8, slots=4, frame=67584"}, ""},
		{"a window too small for anything", small, "", []string{"windows of 262144 bytes, want at least 344064 for lanes=1, slots=4, frame=67584"},
			[]string{"windows of 262144 bytes, want at least 344064"}, "-"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachines(t, "line", 2, c.window)
			m.begin(1, "")
			m.begin(2, c.second)
			refusedDial(t, m.nodes[1], 2, c.first...)
			refusedDial(t, m.nodes[2], 1, c.says...)
			if c.mended != "-" {
				m.nodes[2].end()
				m.begin(2, c.mended)
				m.mended()
			}
			m.end()
		})
	}
}

// The two sides map different amounts of memory. Both windows are as large as both can use.
func TestWindowsOfDifferentSizes(t *testing.T) {
	m := newMachines(t, "line", 2, 4<<20)
	m.begin(1, "")
	m.nodes[2] = m.start(m.spec(2, ""), -1, 2<<20+ntbfixed.PageSize)
	require.Equal(t, "ready", m.nodes[2].readLine())
	m.mended()
	m.end()
}

// The header page at the beginning of a side's memory has a version of its own. Both sides read the
// other one's there.
func TestABridgeOfAnotherVersionIsRefused(t *testing.T) {
	m := newMachines(t, "line", 2, 1<<20)
	const magic = 0x6e746266 << 32
	// What node 2 would have stored to node 1's page.
	_, err := m.bars.files[0].WriteAt(binary.LittleEndian.AppendUint64(nil, magic|4), 0)
	require.NoError(t, err)
	m.begin(1, "")
	refusedDial(t, m.nodes[1], 2, "the peer has version 4, this side 3")
	var said [8]byte
	_, err = m.bars.files[0].ReadAt(said[:], int64(m.bars.side))
	require.NoError(t, err)
	require.EqualValues(t, magic|3, binary.LittleEndian.Uint64(said[:]), "node 2 can see that, too")
	m.begin(2, "")
	m.mended()
	m.end()
}

// Two machines were given one number. Each has an end of the bridge, and both say so.
func TestTwoMachinesWithOneNumberAreRefused(t *testing.T) {
	m := newMachines(t, "line", 2, 1<<20)
	m.begin(1, "")
	other := m.start(fmt.Sprintf("line:%s-x?node=1&nodes=2", m.name), 1, m.bars.side)
	require.Equal(t, "ready", other.readLine())
	refusedDial(t, m.nodes[1], 2, "two nodes have the same id", "both are node1.1")
	refusedDial(t, other, 2, "two nodes have the same id", "both are node1.1")
	other.end()
	m.begin(2, "")
	m.mended()
	m.end()
}

// Two processes use one end of the bridge, where only the memory could tell. The first one keeps
// it, whether the other end is in use or not. When it has been killed, the second one has it.
func TestTwoProcessesAtOneEndOfABridge(t *testing.T) {
	for _, linked := range []bool{true, false} {
		t.Run(fmt.Sprintf("linked=%v", linked), func(t *testing.T) {
			m := newMachines(t, "line", 2, 1<<20)
			m.begin(1, "")
			if linked {
				m.begin(2, "")
				m.exchange()
				require.Equal(t, "ok", m.ask(1, "keep node2"))
			}
			second := m.start(fmt.Sprintf("line:%s-x?node=1&nodes=2", m.name), 0, m.bars.side)
			require.Equal(t, "ready", second.readLine())
			refusedDial(t, second, 2, "another process uses this end of the bridge")
			if !linked {
				m.begin(2, "")
				require.Equal(t, "ok", m.ask(1, "keep node2"))
			}
			for range 5 {
				require.Equal(t, "ok", m.ask(1, "use 300000"), "the first is not disturbed")
				refusedDial(t, second, 2, "another process uses this end of the bridge")
			}
			m.nodes[1].kill()
			until(t, "the second process has the end", func() bool { return second.ask("get node2 1000") == "ok" })
			second.end()
			m.nodes[2].end()
		})
	}
}
