//go:build linux

package integration

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/status"
	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/require"
)

func init() { roles["node"] = playNode }

// playNode is one node of a ring. It echoes what arrives at port 7, and does what
// the test says:
//
//	dial ADDRESS N   send N bytes over a new connection and get them back
//	keep ADDRESS     open a connection and keep it
//	use N            send N bytes over that one and get them back
func playNode(p *self) error {
	f, err := sdp.Open(p.args[0])
	if err != nil {
		p.printf("no node: %v", err)
		return nil
	}
	defer f.Close()
	ln, err := f.Listen("sdp", ":7")
	if err != nil {
		return err
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c) // a test may kill the other side
				_ = c.(*sdp.Conn).CloseWrite()
			}()
		}
	}()
	defer func() { ln.Close(); <-served }()
	p.printf("%s", ln.Addr())

	var kept *sdp.Conn
	for {
		line, ok := p.readLine()
		if !ok {
			return nil
		}
		var err error
		switch w := words(line); w[0] {
		case "dial":
			var c *sdp.Conn
			if c, err = dialNode(f, w[1]); err == nil {
				err = there(c, w[2])
				if e := c.CloseWrite(); err == nil {
					err = e
				}
				var rest []byte
				if rest, _ = io.ReadAll(c); err == nil && len(rest) > 0 {
					err = fmt.Errorf("%d bytes too many", len(rest))
				}
				c.Close()
			}
		case "keep":
			kept, err = dialNode(f, w[1])
		case "use":
			err = there(kept, w[1])
		}
		if err != nil {
			p.printf("%v", err)
		} else {
			p.printf("ok")
		}
	}
}

func dialNode(f *sdp.Fabric, address string) (*sdp.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout/2)
	defer cancel()
	c, err := f.DialContext(ctx, "sdp", address)
	if err != nil {
		return nil, err
	}
	if err := wantSDP(c); err != nil {
		return nil, err
	}
	return c.(*sdp.Conn), c.SetDeadline(time.Now().Add(testTimeout))
}

// there sends bytes and wants them back.
func there(c *sdp.Conn, count string) error {
	var n int64
	if _, err := fmt.Sscan(count, &n); err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() {
		_, err := io.CopyN(c, newStream(1), n)
		sent <- err
	}()
	if err := newStream(1).readExactly(c, n); err != nil {
		return err
	}
	return <-sent
}

// ring is the nodes of one fabric, each a process.
type ring struct {
	t        *testing.T
	topology string
	name     string
	n        int
	role     string           // of the processes
	options  string           // of all nodes, "&NAME=VALUE"
	nodes    []*peer          // by node; element 0 is not used
	sent     map[int][]string // by node: outcomes of streams, see cut_test.go
}

func newRing(t *testing.T, topology string, n int) *ring {
	_, name, _ := strings.Cut(fabric(t), ":")
	return &ring{t: t, topology: topology, name: name, n: n, role: "node", nodes: make([]*peer, n+1), sent: map[int][]string{}}
}

func (r *ring) spec(node int) string {
	return fmt.Sprintf("%s:%s?node=%d&nodes=%d%s", r.topology, r.name, node, r.n, r.options)
}

// begin starts a node, and does not wait for it.
func (r *ring) begin(node int) { r.nodes[node] = startPeer(r.t, r.role, []string{r.spec(node)}) }

// ready waits until all nodes that were started listen.
func (r *ring) ready(nodes ...int) {
	r.t.Helper()
	for _, node := range nodes {
		require.Equal(r.t, fmt.Sprintf("node%d:7", node), r.nodes[node].readLine())
	}
}

func (r *ring) ask(node int, format string, args ...any) string {
	r.t.Helper()
	return r.nodes[node].ask(fmt.Sprintf(format, args...))
}

// all makes each node dial the others, and itself.
func (r *ring) all(bytes int) {
	r.t.Helper()
	for a := 1; a <= r.n; a++ {
		for b := 1; b <= r.n; b++ {
			require.Equal(r.t, "ok", r.ask(a, "dial node%d:7 %d", b, bytes), "from node %d to node %d", a, b)
		}
	}
}

func (r *ring) end() {
	r.t.Helper()
	for _, p := range r.nodes {
		if p != nil {
			p.end()
		}
	}
}

func (r *ring) look() (v status.Fabric) {
	r.t.Helper()
	cmd := exec.Command(filepath.Join(programs, "ntbnet"), "topology", "--json", "--fabric", r.topology+":"+r.name)
	out, err := cmd.Output()
	require.NoError(r.t, err)
	require.NoError(r.t, json.Unmarshal(out, &v))
	return v
}

// forwarded returns how many bytes all nodes have forwarded.
func (r *ring) forwarded() (bytes uint64) {
	for _, v := range r.look().Views {
		for _, l := range v.Links {
			bytes += l.ForwardedBytes
		}
	}
	return bytes
}

// linked waits until all nodes run and all links are up.
func (r *ring) linked() {
	r.t.Helper()
	until(r.t, "all links are up", func() bool {
		v := r.look()
		for _, w := range v.Wires {
			if w.State != "up" {
				return false
			}
		}
		return len(v.Absent) == 0 && len(v.Wires) > 0
	})
}

func TestNodesStartInAnyOrder(t *testing.T) {
	for _, c := range []struct {
		topology string
		n        int
		pause    time.Duration // most time between two starts
	}{
		{"ring", 2, 0}, {"ring", 3, 200 * time.Millisecond}, {"line", 4, 50 * time.Millisecond},
		{"mesh", 5, 0}, {"ring", int(long(16, 6)), 20 * time.Millisecond},
	} {
		t.Run(fmt.Sprintf("%s of %d", c.topology, c.n), func(t *testing.T) {
			r := newRing(t, c.topology, c.n)
			order := rand.Perm(c.n)
			for _, i := range order {
				r.begin(i + 1)
				if c.pause > 0 {
					time.Sleep(rand.N(c.pause))
				}
			}
			for i := range c.n {
				r.ready(i + 1)
			}
			t.Logf("started in the order %v", order)
			r.all(10_000)
			r.linked() // a node may be reached by another way first
			r.end()
		})
	}
}

// The first node dials one that is started only then.
func TestADialWaitsForANode(t *testing.T) {
	r := newRing(t, "ring", 3)
	r.begin(1)
	r.ready(1)
	_, err := fmt.Fprintln(r.nodes[1].in, "dial node3:7 100")
	require.NoError(t, err)
	time.Sleep(100 * time.Millisecond) // so that the dial has begun, mostly
	r.begin(3)
	r.ready(3)
	// The dial may have come between the link and the listener.
	answer := r.nodes[1].readLine()
	if strings.HasSuffix(answer, syscall.ECONNREFUSED.Error()) {
		answer = r.ask(1, "dial node3:7 100")
	}
	require.Equal(t, "ok", answer)
	r.end()
}

func TestASecondProcessWithTheSameNumber(t *testing.T) {
	r := newRing(t, "ring", 3)
	r.begin(1)
	r.begin(2)
	r.ready(1, 2)
	require.Equal(t, "ok", r.ask(1, "keep node2:7"))
	second := startPeer(t, "node", []string{r.spec(1)})
	answer := second.readLine()
	require.Contains(t, answer, "no node: ")
	require.Contains(t, answer, fmt.Sprintf("node1 of fabric ring:%s runs already in process %d", r.name, r.nodes[1].cmd.Process.Pid))
	require.Contains(t, answer, syscall.EADDRINUSE.Error())
	second.end()
	require.Equal(t, "ok", r.ask(1, "use 100000"), "the first is not harmed")
	v := r.look()
	require.EqualValues(t, 1, v.Views[0].Refused)
	require.Contains(t, v.Views[0].LastRefusal, fmt.Sprintf("process %d was to be the same", second.cmd.Process.Pid))
	r.end()
}

func TestNodesOfDifferentSizes(t *testing.T) {
	r := newRing(t, "ring", 3)
	r.begin(1)
	r.begin(2)
	r.ready(1, 2)
	for spec, want := range map[string]string{
		strings.Replace(r.spec(3), "nodes=3", "nodes=4", 1): "4 nodes",
		strings.Replace(r.spec(3), "ring:", "line:", 1):     `"line"`,
		r.spec(3) + "&lanes=2":                              "lanes=2",
	} {
		other := startPeer(t, "node", []string{spec})
		answer := other.readLine()
		require.Contains(t, answer, "no node: ")
		require.Contains(t, answer, want)
		require.Contains(t, answer, `"ring" of 3 nodes, lanes=1`)
		other.end()
		require.Contains(t, r.look().Views[0].LastRefusal, want, "the other side says so too")
	}
	r.begin(3)
	r.ready(3)
	r.all(100)
	r.end()
}

func TestANodeIsKilledAndStartsAgain(t *testing.T) {
	r := newRing(t, "ring", 4)
	for node := 1; node <= 4; node++ {
		r.begin(node)
	}
	r.ready(1, 2, 3, 4)
	r.linked()
	require.Equal(t, "ok", r.ask(1, "keep node2:7"))
	require.Equal(t, "ok", r.ask(4, "keep node1:7"))
	require.Equal(t, "ok", r.ask(1, "use 1000000"))
	r.nodes[2].kill()
	require.Contains(t, r.ask(1, "use 1000"), syscall.ECONNRESET.Error(), "its connections end")
	require.Equal(t, "ok", r.ask(4, "use 1000000"), "others do not")
	require.Equal(t, []int{2}, r.look().Absent)

	r.begin(2)
	r.ready(2)
	r.all(1000)
	// A neighbour may be reached by another way before its own link is made again.
	until(t, "the links of the node that was killed came up twice, all others once", func() bool {
		v := r.look()
		good := len(v.Absent) == 0
		for _, view := range v.Views {
			for _, l := range view.Links {
				want := 1
				if l.To == 2 {
					want = 2
				}
				good = good && l.State == "up" && l.Ups == want
			}
		}
		return good
	})
	r.end()
}

// A node that is stopped for a while, and whose neighbour starts meanwhile, is not
// forgotten.
func TestANodeIsStoppedWhileItsNeighbourStarts(t *testing.T) {
	r := newRing(t, "ring", 3)
	r.begin(1)
	r.ready(1)
	require.NoError(t, r.nodes[1].cmd.Process.Signal(syscall.SIGSTOP))
	r.begin(2)
	r.begin(3)
	r.ready(2, 3)
	require.Equal(t, "ok", r.ask(2, "dial node3:7 1000"))
	require.NoError(t, r.nodes[1].cmd.Process.Signal(syscall.SIGCONT))
	r.all(1000)
	r.end()
}

func init() { roles["leave"] = playLeave }

// playLeave is a node that writes to another one, closes the connection and exits.
func playLeave(p *self) error {
	f, err := sdp.Open(p.args[0])
	if err != nil {
		return err
	}
	c, err := dialNode(f, p.args[1])
	if err != nil {
		return err
	}
	var n int64
	if _, err := fmt.Sscan(p.args[2], &n); err != nil {
		return err
	}
	if _, err := io.CopyN(c, newStream(1), n); err != nil {
		return err
	}
	if err := c.Close(); err != nil {
		return err
	}
	os.Exit(0) // as a program does that does not call Fabric.Close
	return nil
}

// A client three hops away writes, closes and exits at once.
func TestWhatALeavingNodeWroteArrives(t *testing.T) {
	r := newRing(t, "line", 4)
	f, err := sdp.Open(r.spec(1))
	require.NoError(t, err)
	defer f.Close()
	ln, err := f.Listen("sdp", ":0")
	require.NoError(t, err)
	defer ln.Close()
	for _, node := range []int{2, 3} {
		r.begin(node)
		r.ready(node)
	}
	n := long(64<<20, 4<<20)
	leaving := startPeer(t, "leave", []string{r.spec(4), ln.Addr().String(), fmt.Sprint(n)})
	c, err := ln.Accept()
	require.NoError(t, err)
	defer c.Close()
	c.SetDeadline(time.Now().Add(testTimeout))
	require.Contains(t, c.RemoteAddr().String(), "node4:")
	require.NoError(t, newStream(1).readExactly(c, n))
	rest, err := io.ReadAll(c)
	require.NoError(t, err, "the end of the stream, and no reset")
	require.Empty(t, rest)
	leaving.end()
	r.end()
}

func TestHTTPOverHops(t *testing.T) {
	for topology, n := range map[string]int{"ring": 5, "line": 5} {
		t.Run(topology, func(t *testing.T) {
			r := newRing(t, topology, n)
			// The server is two hops away in a ring, and four in a line.
			at := map[string]int{"ring": 4, "line": 5}[topology]
			for node := 2; node <= n; node++ {
				if node != at {
					r.begin(node)
					r.ready(node)
				}
			}
			server := startPeer(t, "http", []string{"HTTP/1.1"}, func(c *exec.Cmd) {
				c.Env = append(c.Env, "SDP_FABRIC="+r.spec(at))
			})
			r.nodes[at] = server
			address := server.readLine()
			require.Contains(t, address, fmt.Sprintf("node%d:", at))

			f, err := sdp.Open(r.spec(1))
			require.NoError(t, err)
			defer f.Close()
			transport := &http.Transport{DialContext: (&sdp.Dialer{Fabric: f}).DialContext}
			defer transport.CloseIdleConnections()
			client := &http.Client{Transport: transport, Timeout: testTimeout}
			const size = 5_000_000
			for range 3 {
				got, err := client.Get(fmt.Sprintf("http://%s/stream?n=%d", address, size))
				require.NoError(t, err)
				require.NoError(t, newStream(1).readExactly(got.Body, size))
				require.NoError(t, got.Body.Close())
				sum := sha256.New()
				put, err := http.NewRequest("PUT", "http://"+address+"/sum", io.TeeReader(io.LimitReader(newStream(2), size), sum))
				require.NoError(t, err)
				got, err = client.Do(put)
				require.NoError(t, err)
				answer, err := io.ReadAll(got.Body)
				require.NoError(t, err)
				require.NoError(t, got.Body.Close())
				require.Equal(t, fmt.Sprintf("%d %x <nil>", size, sum.Sum(nil)), string(answer))
			}
			// The bytes went through the other nodes, as these report.
			require.Greater(t, r.forwarded(), uint64(6*size))
			transport.CloseIdleConnections()
			var report serverReport
			server.askFor("report", &report)
			require.Equal(t, map[string]int{"sdp": report.Networks["sdp"]}, report.Networks)
			require.Positive(t, report.Networks["sdp"])
			r.end()
		})
	}
}
