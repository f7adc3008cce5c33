//go:build linux

package integration

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// tunNode is a node that has a network namespace of its own, and in it only lo and its TUN devices.
type tunNode struct {
	t      *testing.T
	number int
	holder *process // keeps the namespace
	fabric string
	args   []string
	daemon *process
}

// newTunNodes makes the namespaces of nodes. fabric has %d for the number of a node.
func newTunNodes(t *testing.T, n int, fabric string, args ...string) (nodes []*tunNode) {
	t.Helper()
	if raceEnabled {
		t.Skip("the programs are built without the race detector")
	}
	if f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0); err != nil {
		fmt.Printf("WARNING: %s is skipped: %v\n", t.Name(), err)
		t.Skip(err)
	} else {
		f.Close()
	}
	apart := cage{Namespaces: syscall.CLONE_NEWNET}.try(t)
	for i := range n {
		node := &tunNode{t: t, number: i + 1, fabric: "SDP_FABRIC=" + fmt.Sprintf(fabric, i+1), args: args}
		node.holder = start(t, tool(t, "sleep"), []string{"10000"}, apart.option())
		eventually(t, "a namespace is made", func() bool {
			comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", node.holder.cmd.Process.Pid))
			return string(comm) == "sleep\n"
		})
		nodes = append(nodes, node)
	}
	return nodes
}

// startTun starts sdp-tun on nodes of a ring, and waits until each has a connection to each other one.
func startTun(t *testing.T, n int, args ...string) []*tunNode {
	t.Helper()
	nodes := newTunNodes(t, n, fmt.Sprintf("ring:%s?node=%%d&nodes=%d", fabrictest.Name(t), n), args...)
	for _, node := range nodes {
		node.start()
	}
	tunsUp(nodes)
	return nodes
}

// tunsUp waits until each node has a connection to each other one.
func tunsUp(nodes []*tunNode) {
	for _, node := range nodes {
		for _, other := range nodes {
			if other != node {
				node.daemon.waitFor(regexp.MustCompile(fmt.Sprintf(`(?m)^sdp-tun: node%d is up$`, other.number)), 1)
			}
		}
	}
}

func (n *tunNode) namespace() string { return fmt.Sprintf("/proc/%d/ns/net", n.holder.cmd.Process.Pid) }

// within runs a program in the namespace.
func (n *tunNode) within() option { return cage{Net: n.namespace()}.option() }

func (n *tunNode) start(options ...option) {
	n.t.Helper()
	options = append([]option{withEnv(n.fabric), n.within()}, options...)
	n.daemon = start(n.t, filepath.Join(programs, "sdp-tun"), n.args, options...)
	n.daemon.waitFor(regexp.MustCompile(`(?m)^sdp-tun: node \d+ of \d+`), 1)
}

// run runs a program in the namespace, which must succeed, and returns what it wrote.
func (n *tunNode) run(name string, args ...string) string {
	n.t.Helper()
	p := start(n.t, tool(n.t, name), args, n.within())
	require.Equal(n.t, 0, p.status(), "%s %q: %s", name, args, p.out.String())
	return p.out.String()
}

// pings has ping send echo requests, with further arguments, each of which is answered. Only with a deadline does ping wait
// for answers to the last ones for longer than two round trips.
func (n *tunNode) pings(count int, args ...string) {
	n.t.Helper()
	out := n.run("ping", append([]string{"-c", strconv.Itoa(count), "-i", "0.02", "-w", "50"}, args...)...)
	for seq := range count {
		require.Regexp(n.t, fmt.Sprintf(`(?m)^\d+ bytes from .*: icmp_seq=%d `, seq+1), out)
	}
}

// do calls f with sockets of the namespace. The thread comes back, since with it would end the processes that it has started.
func (n *tunNode) do(f func()) {
	n.t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var fds []int
	for _, path := range []string{"/proc/thread-self/ns/net", n.namespace()} {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		require.NoError(n.t, err)
		defer unix.Close(fd)
		fds = append(fds, fd)
	}
	require.NoError(n.t, unix.Setns(fds[1], unix.CLONE_NEWNET))
	defer func() {
		if err := unix.Setns(fds[0], unix.CLONE_NEWNET); err != nil {
			panic(err)
		}
	}()
	f()
}

// listen listens in the namespace by TCP.
func (n *tunNode) listen() (ln net.Listener) {
	n.t.Helper()
	var err error
	n.do(func() { ln, err = net.Listen("tcp", ":0") })
	require.NoError(n.t, err)
	n.t.Cleanup(func() { ln.Close() })
	return ln
}

// dial connects from the namespace by TCP.
func (n *tunNode) dial(address string) (c net.Conn, err error) {
	n.do(func() { c, err = (&net.Dialer{Timeout: testTimeout}).Dial("tcp", address) })
	return c, err
}

// echoed is a connection between two nodes, on which each line comes back.
type echoed struct {
	t *testing.T
	c net.Conn
}

// tunEcho connects one node to another one.
func tunEcho(from, to *tunNode) *echoed {
	from.t.Helper()
	return tunEchoAt(from, to, fmt.Sprintf("10.77.0.%d", to.number))
}

// tunEchoAt connects a node to another one at an address of that.
func tunEchoAt(from, to *tunNode, address string) *echoed {
	from.t.Helper()
	ln := to.listen()
	var server net.Conn
	accepted, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		c, err := ln.Accept()
		server = c
		close(accepted)
		if err == nil {
			io.Copy(c, c)
		}
	}()
	from.t.Cleanup(func() {
		ln.Close()
		<-accepted
		if server != nil {
			server.Close()
		}
		<-done
	})
	c, err := from.dial(net.JoinHostPort(address, strconv.Itoa(ln.Addr().(*net.TCPAddr).Port)))
	require.NoError(from.t, err)
	from.t.Cleanup(func() { c.Close() })
	return &echoed{from.t, c}
}

// alive sends 100 kB, and waits until they have come back.
func (e *echoed) alive() {
	e.t.Helper()
	e.carries(100_000)
}

// carries sends n bytes, and waits until they have come back.
func (e *echoed) carries(n int64) {
	e.t.Helper()
	require.NoError(e.t, e.c.SetDeadline(time.Now().Add(testTimeout)))
	sent := make(chan error, 1)
	go func() {
		_, err := io.CopyN(e.c, newStream(1), n)
		sent <- err
	}()
	require.NoError(e.t, newStream(1).readExactly(e.c, n))
	require.NoError(e.t, <-sent)
}

// carrier reports whether the device of a peer has a carrier.
func (n *tunNode) carrier(peer int) (on bool) {
	n.do(func() {
		link, err := net.InterfaceByName("sdp" + strconv.Itoa(peer))
		on = err == nil && link.Flags&net.FlagRunning != 0
	})
	return on
}

// Connections by TCP go on when a daemon is killed and started again. With NTBNET_LONG that happens 20 times.
func TestTunConnectionsOutliveTheDaemon(t *testing.T) {
	nodes := startTun(t, 2)
	e := tunEcho(nodes[0], nodes[1])
	e.alive()
	times := 3
	if longRun() {
		times = 20
	}
	for i := range times {
		node := nodes[i%2]
		node.daemon.signal(syscall.SIGKILL)
		node.daemon.status()
		node.start()
		e.alive()
	}
}

// A peer that is stopped has no carrier, and a connect to it fails at once, as one to a node that never came.
func TestTunCarrierFollowsThePeer(t *testing.T) {
	nodes := newTunNodes(t, 3, fmt.Sprintf("ring:%s?node=%%d&nodes=3", fabrictest.Name(t)))
	nodes = nodes[:2]
	for _, node := range nodes {
		node.start()
	}
	tunsUp(nodes)
	e := tunEcho(nodes[0], nodes[1])
	unreachable := func(address string) {
		t.Helper()
		_, err := nodes[0].dial(address)
		require.ErrorIs(t, err, syscall.EHOSTUNREACH)
	}
	unreachable("10.77.0.3:1")
	unreachable("10.77.0.99:1")
	for range 2 {
		eventually(t, "a carrier", func() bool { return nodes[0].carrier(2) })
		e.alive()
		nodes[1].daemon.signal(syscall.SIGSTOP)
		eventually(t, "no carrier", func() bool { return !nodes[0].carrier(2) })
		unreachable("10.77.0.2:1")
		nodes[1].daemon.signal(syscall.SIGCONT)
	}
	e.alive()
	nodes[1].daemon.signal(syscall.SIGTERM)
	require.Equal(t, 0, nodes[1].daemon.status())
	eventually(t, "no carrier", func() bool { return !nodes[0].carrier(2) })
}

// A link of a ring is cut, and mended: packets go the other way, and the device stays as it is.
func TestTunOverARingThatIsCut(t *testing.T) {
	r := startMembers(t, "ring", 3, "")
	nodes := newTunNodes(t, 3, "ring:"+r.name+"?node=%d")
	for _, node := range nodes {
		node.start()
	}
	tunsUp(nodes)
	e := tunEcho(nodes[0], nodes[1])
	e.alive()
	index := func() (i int) {
		nodes[0].do(func() {
			link, err := net.InterfaceByName("sdp2")
			if err == nil {
				i = link.Index
			}
		})
		return i
	}
	was := index()
	require.NotZero(t, was)
	mend := r.shutDirectories()
	r.cut(1, 2)
	e.alive()
	mend()
	e.alive()
	require.Equal(t, was, index())
	for _, node := range nodes {
		node.daemon.signal(syscall.SIGTERM)
		require.Equal(t, 0, node.daemon.status())
	}
	r.end()
}

// On devices that root has prepared, a user without capabilities runs the daemon.
func TestTunOfAUserWithoutCapabilities(t *testing.T) {
	dir, _ := shop(t)
	nodes := newTunNodes(t, 2, "ring:"+dir+"?node=%d&nodes=2")
	device, err := os.Stat("/dev/net/tun")
	require.NoError(t, err)
	if device.Mode().Perm()&0o006 != 0o006 { // udev gives it 0666
		require.NoError(t, os.Chmod("/dev/net/tun", 0o666))
		t.Cleanup(func() { os.Chmod("/dev/net/tun", device.Mode().Perm()) })
	}
	command := func(n *tunNode, words ...string) *process {
		p := start(t, filepath.Join(programs, "sdp-tun"), words, withEnv(n.fabric), n.within())
		p.status()
		return p
	}
	user := strconv.Itoa(userA)
	asUser := func(n *tunNode) option { return cage{UID: userA, Groups: inShop, Net: n.namespace()}.option() }
	p := start(t, filepath.Join(programs, "sdp-tun"), nil, withEnv(nodes[0].fabric), asUser(nodes[0]))
	require.Equal(t, 2, p.status())
	require.Contains(t, p.out.String(), "sdp-tun: device sdp2: there is no such device, and making one needs CAP_NET_ADMIN: run sdp-tun setup as root")

	for _, n := range nodes {
		p := command(n, "setup", "--user", user, "--mtu", "9000")
		require.Equal(t, 0, p.status(), "%s", p.out.String())
		p = command(n, "setup", "--user", user, "--mtu", "9000") // again
		require.Equal(t, 0, p.status(), "%s", p.out.String())
		n.daemon = start(t, filepath.Join(programs, "sdp-tun"), nil, withEnv(n.fabric), asUser(n))
	}
	tunsUp(nodes)
	for _, n := range nodes {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.daemon.cmd.Process.Pid))
		require.NoError(t, err)
		require.Regexp(t, `(?m)^CapEff:\t0+$`, string(status))
	}
	tunEcho(nodes[0], nodes[1]).alive()
	for _, n := range nodes {
		n.daemon.signal(syscall.SIGTERM)
		require.Equal(t, 0, n.daemon.status(), "%s", n.daemon.out.String())
		p := command(n, "remove")
		require.Equal(t, 0, p.status(), "%s", p.out.String())
		n.do(func() {
			links, err := net.Interfaces()
			require.NoError(t, err)
			require.Len(t, links, 1) // lo
		})
	}
}

// A daemon of root becomes another user when it has its devices.
func TestTunBecomesAUser(t *testing.T) {
	dir, _ := shop(t)
	user := strconv.Itoa(userA)
	nodes := newTunNodes(t, 2, "ring:"+dir+"?node=%d&nodes=2&owner="+user, "--user", user)
	require.NoError(t, os.Chown(dir, userA, userA))
	require.NoError(t, os.Chmod(dir, 0o700))
	for _, n := range nodes {
		n.start()
	}
	tunsUp(nodes)
	for _, n := range nodes {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.daemon.cmd.Process.Pid))
		require.NoError(t, err)
		require.Regexp(t, `(?m)^CapEff:\t0+$`, string(status))
		require.Regexp(t, `(?m)^Uid:\t`+strings.Repeat(user+`\s`, 4), string(status))
	}
	tunEcho(nodes[0], nodes[1]).alive()
}

// The files of docs/tun.md are right for systemd's programs.
func TestTunUnit(t *testing.T) {
	root := t.TempDir()
	for path, text := range documentedFiles(t, "tun.md") {
		require.NoError(t, os.MkdirAll(filepath.Dir(root+path), 0o755))
		require.NoError(t, os.WriteFile(root+path, []byte(strings.ReplaceAll(text, "/usr/local/bin", programs)), 0o644))
	}
	succeeds(t, "systemd-sysusers", "--root="+root)
	require.Contains(t, inFile(t, root+"/etc/passwd", "sdp-tun"), "/usr/sbin/nologin")
	require.Empty(t, succeeds(t, "systemd-analyze", "verify", root+"/etc/systemd/system/sdp-tun.service"))
}

// What is behind a node is reached through it, and nothing else may come from there.
func TestTunRoutes(t *testing.T) {
	nodes := newTunNodes(t, 2, fmt.Sprintf("ring:%s?node=%%d&nodes=2", fabrictest.Name(t)))
	nodes[0].args = []string{"--route", "192.168.7.0/24=2", "--http", tunCounters}
	for _, n := range nodes {
		n.start()
	}
	tunsUp(nodes)
	for _, a := range []string{"192.168.7.1", "192.168.8.1"} {
		nodes[1].run("ip", "addr", "add", a+"/32", "dev", "lo")
	}
	nodes[0].run("ping", "-c", "2", "-i", "0.1", "-W", "30", "192.168.7.1")
	p := start(t, tool(t, "ping"), []string{"-c", "2", "-i", "0.1", "-W", "1", "-I", "192.168.8.1", "10.77.0.1"}, nodes[1].within())
	require.Equal(t, 1, p.status(), "%s", p.out.String())
	metrics := nodes[0].run("curl", "-sS", "http://"+tunCounters+"/metrics")
	require.Regexp(t, `(?m)^sdp_tun_dropped_packets_total\{node="2",reason="source_not_allowed"\} 2$`, metrics)
	require.Regexp(t, `(?m)^sdp_tun_up\{node="2"\} 1$`, metrics)
}

// dialTun dials the daemon of node 1 as another node's does, says hello, and that it lives, until the connection ends.
func dialTun(t *testing.T, f *sdp.Fabric) (c net.Conn, ended chan struct{}) {
	t.Helper()
	c, err := f.Dial("sdp", "node1:5077")
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	hello := append([]byte("sdp-tun\n"), 1, 0, 0, 0)
	for _, v := range []uint32{65000, 0, 0} {
		hello = binary.LittleEndian.AppendUint32(hello, v)
	}
	_, err = c.Write(hello)
	require.NoError(t, err)
	ended = make(chan struct{})
	go func() {
		defer close(ended)
		for err := error(nil); err == nil; time.Sleep(100 * time.Millisecond) {
			_, err = c.Write(make([]byte, 4))
		}
	}()
	return c, ended
}

// counts returns whether a line is among the counters, which the node serves at tunCounters.
func (n *tunNode) counts(line string) func() bool {
	re := regexp.MustCompile(`(?m)^sdp_tun_` + line + `$`)
	return func() bool { return re.MatchString(n.run("curl", "-sS", "http://"+tunCounters+"/metrics")) }
}

const tunCounters = "127.0.0.1:9477"

// A process of node 2 dials the daemon of node 1 before that of node 2 does. It is node 2 then, sends as
// nobody else, and keeps the daemon out until it ends. A process of node 1 is refused.
func TestTunOfAProcessThatDialsFirst(t *testing.T) {
	r := startMembers(t, "ring", 3, "")
	nodes := newTunNodes(t, 3, "ring:"+r.name+"?node=%d", "--http", tunCounters)
	nodes[0].start()
	open := func(node int) *sdp.Fabric {
		f, err := sdp.Open(fmt.Sprintf("ring:%s?node=%d", r.name, node))
		require.NoError(t, err)
		t.Cleanup(func() { f.Close() })
		return f
	}
	_, err := open(1).Dial("sdp", "localhost:5077")
	require.ErrorIs(t, err, syscall.EACCES)

	c, ended := dialTun(t, open(2))
	nodes[0].daemon.waitFor(regexp.MustCompile(`node2 is up`), 1)
	datagram := func(from byte) []byte { // of UDP, to node 1
		b := append(binary.LittleEndian.AppendUint32(nil, 10+28), make([]byte, 10+28)...)
		ip := b[14:]
		ip[0], ip[3], ip[8], ip[9] = 0x45, 28, 64, 17
		copy(ip[12:], []byte{10, 77, 0, from, 10, 77, 0, 1})
		ip[25] = 8
		return b
	}
	for _, from := range []byte{3, 2, 1, 3} {
		_, err = c.Write(datagram(from))
		require.NoError(t, err)
	}
	eventually(t, "sources of others are dropped", nodes[0].counts(`dropped_packets_total\{node="2",reason="source_not_allowed"\} 3`))
	require.True(t, nodes[0].counts(`received_packets_total\{node="2"\} 1`)())
	nodes[1].start()
	eventually(t, "the daemon is refused", nodes[0].counts(`refused_total\{node="2"\} [1-9]\d*`))
	c.Close()
	<-ended
	nodes[1].daemon.waitFor(regexp.MustCompile(`node1 is up`), 1)
	tunEcho(nodes[1], nodes[0]).alive()

	// One that claims the port first is found out by the daemon.
	ln, err := open(3).Listen("sdp", ":5077")
	require.NoError(t, err)
	defer ln.Close()
	p := start(t, filepath.Join(programs, "sdp-tun"), nil, withEnv(nodes[2].fabric), nodes[2].within())
	require.Equal(t, 2, p.status())
	require.Contains(t, p.out.String(), "address already in use")
	for _, node := range nodes[:2] {
		node.daemon.signal(syscall.SIGTERM)
		require.Equal(t, 0, node.daemon.status())
	}
	r.end()
}

// Without its device a node does not go on as if it had one.
func TestTunWithoutItsDevice(t *testing.T) {
	for name, c := range map[string]struct{ args, says string }{
		"removed": {"link del sdp2", "device sdp2: it was removed"},
		"renamed": {"link set sdp2 down name other", "device sdp2: "},
		"down":    {"link set sdp2 down", "device sdp2: it is down"},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := startTun(t, 2)
			before := nodes[0].daemon.out.String()
			nodes[0].run("ip", strings.Fields(c.args)...)
			require.Equal(t, 1, nodes[0].daemon.status())
			said := strings.TrimPrefix(nodes[0].daemon.out.String(), before)
			require.Equal(t, 1, strings.Count(said, "\n"), said)
			require.Contains(t, said, "sdp-tun: cannot go on: "+c.says)
		})
	}
}

// The names that sdp-tun hosts writes are those of the nodes.
func TestTunHosts(t *testing.T) {
	nodes := startTun(t, 2)
	p := start(t, filepath.Join(programs, "sdp-tun"), []string{"hosts"}, withEnv(nodes[0].fabric))
	require.Equal(t, 0, p.status())
	require.Equal(t, "10.77.0.1\tnode1\nfd77::1\tnode1\n10.77.0.2\tnode2\nfd77::2\tnode2\n", p.out.String())
	nodes[0].pings(1, "10.77.0.2")
}
