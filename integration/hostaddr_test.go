//go:build linux

package integration

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	fabrics "github.com/ntbnet/ntbnet/internal/fabric"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func init() { roles["network"], roles["liar"] = playNetwork, playLiar }

// playNetwork is in a network namespace of its own, which others enter. Each line is an address of its end of
// the cable.
func playNetwork(p *self) error {
	if err := loopbackUp(); err != nil {
		return err
	}
	p.printf("ready")
	return p.answerAll(func(w []string) any {
		return newAttempt(interfaceUp(w[0], netip.MustParseAddr(w[1])), 0)
	})
}

// cabled are two machines of a line, with an Ethernet cable between them too.
type cabled struct {
	one, two *machine
}

// Addresses of the machines.
const (
	addressOfOne  = "10.77.0.1"
	addressOfTwo  = "10.77.0.2"
	alsoTwo       = "10.77.0.22"
	addressOfNone = "10.78.0.3"
)

func newCabled(t *testing.T) *cabled {
	dir, exe := shop(t)
	var networks [2]*peer
	for i := range networks {
		cage{Namespaces: unix.CLONE_NEWNET}.try(t)
		networks[i] = startPeer(t, "network", nil, cage{Namespaces: unix.CLONE_NEWNET}.option())
		require.Equal(t, "ready", networks[i].readLine())
	}
	joinNetworks(t, networks[0].cmd.Process.Pid, networks[1].cmd.Process.Pid)
	for i, addresses := range [2][]string{{addressOfOne}, {addressOfTwo, alsoTwo}} {
		for n, a := range addresses {
			name := cableName
			if n > 0 {
				name += ":" + fmt.Sprint(n)
			}
			require.Equal(t, attempt{}, networks[i].try(name+" "+a))
		}
	}
	machine := func(node int) *machine {
		m := newMachine(t, dir, exe, node, hostLines...)
		m.cage.Net = fmt.Sprintf("/proc/%d/ns/net", networks[node-1].cmd.Process.Pid)
		names := "127.0.0.1 localhost\n" + addressOfTwo + " two\n" + alsoTwo + " other\n"
		require.NoError(t, os.WriteFile(filepath.Join(m.etc, "hosts"), []byte(names), 0o644))
		return m
	}
	return &cabled{machine(1), machine(2)}
}

// hostLines are those of both machines' files. One address is no machine's.
var hostLines = []string{"host1 " + addressOfOne, "host2 two," + addressOfTwo + "," + alsoTwo + "," + addressOfNone}

// role starts a process of a user on the machine, which does not say that it is ready.
func (m *machine) role(role string, uid int, args ...string) *peer {
	m.t.Helper()
	return startPeer(m.t, role, args, func(c *exec.Cmd) { c.Path = m.exe }, m.within(uid))
}

// plain starts a process that serves as plain, by TCP alone, at an address. It returns the port.
func (m *machine) plain(address string) (p *peer, port string) {
	m.t.Helper()
	p = m.role("lab", userC)
	require.Equal(m.t, "ready", p.readLine())
	at, err := netip.ParseAddrPort(p.ask("listen plain plain tcp " + address))
	require.NoError(m.t, err)
	return p, fmt.Sprint(at.Port())
}

// cableName is the name of the cable's ends.
const cableName = "cable0"

// joinNetworks joins two network namespaces by a pair of Ethernet devices.
func joinNetworks(t *testing.T, one, two int) {
	t.Helper()
	end := func(pid int) []byte {
		b := make([]byte, unix.SizeofIfInfomsg)
		b = attribute(b, unix.IFLA_IFNAME, []byte(cableName+"\x00"))
		return attribute(b, unix.IFLA_NET_NS_PID, binary.NativeEndian.AppendUint32(nil, uint32(pid)))
	}
	const peerInfo = 1 // VETH_INFO_PEER
	kind := attribute(nil, unix.IFLA_INFO_KIND, []byte("veth\x00"))
	kind = attribute(kind, unix.IFLA_INFO_DATA, attribute(nil, peerInfo, end(two)))
	b := append(make([]byte, unix.SizeofNlMsghdr), attribute(end(one), unix.IFLA_LINKINFO, kind)...)
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], unix.RTM_NEWLINK)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK)
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	require.NoError(t, err)
	defer unix.Close(fd)
	require.NoError(t, unix.Sendto(fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}))
	answer := make([]byte, 1024)
	n, err := unix.Read(fd, answer)
	require.NoError(t, err)
	require.GreaterOrEqual(t, n, unix.SizeofNlMsghdr+4)
	errno := -int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:]))
	if errno == int32(unix.EOPNOTSUPP) {
		fmt.Printf("WARNING: %s is skipped: this kernel has no veth\n", t.Name())
		t.Skip("this kernel has no veth")
	}
	require.Zero(t, errno)
}

// attribute appends an attribute of netlink.
func attribute(b []byte, kind uint16, value []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(unix.SizeofRtAttr+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, value...)
	return append(b, make([]byte, -len(value)&3)...)
}

// port returns the port of a listener.
func (m meeting) port() string { return fmt.Sprint(netip.MustParseAddrPort(m.Address).Port()) }

// reaches dials on network "tcp" and says which server answers, and by which transport.
func (p *peer) reaches(host, port string) string {
	p.t.Helper()
	m := p.meets("dial tcp %s:%s", host, port)
	return m.Name + " by " + m.By
}

// bySDP dials on network "tcp" until a server answers by SDP. A node that answers too late is dialled by TCP, and not
// asked for a while, or it is an error.
func (p *peer) bySDP(name, host, port string) {
	p.t.Helper()
	until(p.t, name+" answers by SDP", func() bool {
		var m meeting
		p.askFor(fmt.Sprintf("dial tcp %s:%s", host, port), &m)
		require.Contains(p.t, []string{"", name}, m.Name)
		return m.By == "sdp"
	})
}

// ends ends a process that may have logged that it used TCP.
func (p *peer) ends() (said string) {
	p.t.Helper()
	p.in.Close()
	p.wait()
	said = linkLog.ReplaceAllString(p.stderr.String(), "")
	require.Equal(p.t, 0, p.cmd.ProcessState.ExitCode(), said)
	return said
}

// Network "tcp" goes by SDP to the addresses of another node, to listeners of any process of it, with the
// addresses that TCP would have. Everything else is TCP.
func TestNetworkTCPToAddressesOfAnotherNode(t *testing.T) {
	c := newCabled(t)
	owner, member, dials := c.two.process(userA), c.two.process(userA), c.one.process(userB)
	ofOwner := owner.meets("listen tcp 0.0.0.0:0 owner").port()
	ofMember := member.meets("listen tcp 0.0.0.0:0 member").port()
	require.Equal(t, "sdp", dials.meets("dial sdp two:%s", ofOwner).By) // so there is a route
	dials.meets("listen sdp localhost:0 dials")                         // so that it owns the links until it ends
	found := c.one.doctor(0)
	for _, a := range []string{addressOfTwo, alsoTwo} {
		require.Contains(t, found, a+" of node2: network tcp goes by SDP to listeners of the fabric")
	}
	require.NotContains(t, found, addressOfOne+" of node1")
	for range 3 {
		for _, host := range []string{addressOfTwo, alsoTwo, "two", "other"} {
			dials.bySDP("owner", host, ofOwner)
			dials.bySDP("member", host, ofMember)
		}
	}
	m := dials.meets("dial tcp other:%s", ofMember)
	require.Equal(t, alsoTwo+":"+ofMember, m.Remote)
	require.True(t, strings.HasPrefix(m.Local, addressOfOne+":"), m.Local)
	require.GreaterOrEqual(t, dials.meets("networks").Stats.DialSDP, uint64(24))

	// Three processes share a port. The kernel's choice is that of the process that answers first, and of the one to
	// which that sends the dial.
	shared := owner.meets("listen tcp 0.0.0.0:0 owner shared").port()
	third := c.two.process(userA)
	for name, p := range map[string]*peer{"member": member, "third": third} {
		require.Equal(t, shared, p.meets("listen tcp 0.0.0.0:%s %s shared", shared, name).port())
	}
	seen := map[string]bool{}
	until(t, "all are reached by SDP", func() bool {
		seen[dials.reaches("two", shared)] = true
		return seen["owner by sdp"] && seen["member by sdp"] && seen["third by sdp"]
	})
	for _, p := range []*peer{third, owner, member} {
		p.end()
	}
	dials.ends()
}

// byTCP ends a process that has used TCP alone, and has logged it once, with one of these reasons.
func (p *peer) byTCP(why ...string) {
	p.t.Helper()
	stats := *p.meets("networks").Stats
	require.Zero(p.t, stats.DialSDP)
	said := p.ends()
	require.Equal(p.t, 1, strings.Count(said, "\n"), said)
	require.Contains(p.t, said, `network "tcp" uses TCP: the address is a node's, and SDP is not possible`)
	require.True(p.t, slices.ContainsFunc(why, func(one string) bool { return strings.Contains(said, one) }), said)
}

// tooLate is why a node is dialled by TCP that answers later than it may.
const tooLate = "the node makes no connection within 1s"

// A TCP socket of a node that no listener of its fabric serves is reached by TCP, also if another user says that it is
// its own, or another namespace has a listener on its port.
func TestATCPSocketOfAnotherNodeIsItsOwners(t *testing.T) {
	c := newCabled(t)
	owner := c.two.process(userA)
	address := owner.meets("listen tcp 127.0.0.1:0 owner").Address // on the same port, of another address
	port := meeting{Address: address}.port()
	plain, _ := c.two.plain(addressOfTwo + ":" + port)
	dials := c.one.process(userB)
	require.Equal(t, "owner", dials.meets("dial sdp two:%s", port).Name)
	require.Equal(t, "plain by tcp", dials.reaches("two", port))

	// A listener in another network namespace.
	apart := *c.two
	apart.cage.Net, apart.cage.Namespaces = "", apart.cage.Namespaces|unix.CLONE_NEWNET
	other := apart.process(userA)
	require.Equal(t, port, other.meets("listen tcp 0.0.0.0:%s apart", port).port())
	require.Equal(t, "plain by tcp", dials.reaches("two", port))
	other.end()

	// A process of another user.
	hijacker := c.two.role("hijacker", userB, addressOfTwo+":"+port, "line:/run/ntbnet/lab?node=2")
	require.Equal(t, "ready", hijacker.readLine())
	for range 3 {
		require.Equal(t, "plain by tcp", dials.reaches("two", port))
	}
	hijacker.end()

	// An address that the node does not have.
	require.NotEmpty(t, dials.misses("dial tcp %s:%s", addressOfNone, port).Error)
	plain.end()
	require.True(t, dials.misses("dial tcp two:%s", port).Refused)
	until(t, "the node answers that no listener has the socket", func() bool {
		dials.misses("dial tcp two:%s", port)
		return dials.meets("networks").Stats.DialNoSDP > 0
	})
	dials.byTCP("connection refused", tooLate)
	owner.end()
}

// playLiar owns the links of a node, in a fabric, and says of each Hello what a wrong peer may say: nothing, "silent", or
// what no honest one says, "torn". A line asks how many there were.
func playLiar(p *self) error {
	spec, err := spec.Parse(p.args[0])
	if err != nil {
		return err
	}
	l := &liar{says: map[string][]byte{"torn": []byte("torn")}[p.args[1]]}
	f, err := fabrics.Open(spec, func(f *fabrics.Fabric) { f.Node().Register(link.ServiceSDP, l) })
	if err != nil {
		return err
	}
	defer f.Close()
	p.printf("ready")
	return p.answerAll(func([]string) any { return l.hellos.Load() })
}

type liar struct {
	says   []byte
	hellos atomic.Int64
}

type liarsLink struct {
	*liar
	peer *link.Peer
}

func (l *liar) Open(p *link.Peer) link.Handler { return &liarsLink{l, p} }

func (*liarsLink) Down(error) {}

func (l *liarsLink) Message([]byte) error {
	l.hellos.Add(1)
	if l.says == nil {
		return nil
	}
	return l.peer.Send(link.ServiceSDP, l.says)
}

// A node that is not there, does not answer, or answers what nobody can say, costs a second at most, once a second.
// Option fallback=0 makes it an error.
func TestANodeThatDoesNotAnswerIsReachedByTCP(t *testing.T) {
	c := newCabled(t)
	plain, port := c.two.plain("0.0.0.0:0")
	dial := func(p *peer) { require.Equal(t, "plain by tcp", p.reaches("two", port)) }

	require.Contains(t, c.one.doctor(0), addressOfTwo+" of node2: network tcp is TCP, as long as nobody owns the links of this node")
	absent := c.one.process(userA)
	absent.meets("listen sdp localhost:0 absent")
	for range 20 {
		dial(absent)
	}
	require.Contains(t, c.one.doctor(0), addressOfTwo+" of node2: network tcp is TCP, since there is no route to the node")
	require.Equal(t, sdp.NetworkStats{DialNoNode: 20}, *absent.meets("networks").Stats)
	absent.byTCP("10.77.0.2:" + port + " of node2: the node is not reached: no route to host")

	for _, says := range []string{"silent", "torn"} {
		liar := c.two.role("liar", userA, "line:/run/ntbnet/lab?node=2&nodes=2", says)
		require.Equal(t, "ready", liar.readLine())
		dials := c.one.process(userA)
		var n uint64
		asked := func() sdp.NetworkStats { n++; dial(dials); return *dials.meets("networks").Stats }
		begun := time.Now()
		until(t, "the node is asked", func() bool { asked(); return liar.ask("") != "0" })
		if says == "silent" {
			for range 20 {
				asked()
			}
			var hellos float64
			liar.askFor("", &hellos)
			require.LessOrEqual(t, hellos, time.Since(begun).Seconds()+1)
			last := asked()
			require.Equal(t, sdp.NetworkStats{DialNoNode: n}, last)
		}
		dials.kill()
		liar.kill()
	}

	c.one.says(0o644, slices.Concat([]string{"fabric line:/run/ntbnet/lab", "node 1", "nodes 2", "fallback 0"}, hostLines)...)
	strict := c.one.process(userA)
	require.Contains(t, strict.misses("dial tcp two:%s", port).Error, "dial tcp 10.77.0.2:"+port+": node2: the node is not reached: no route to host")
	server := c.two.process(userA)
	ours := server.meets("listen tcp 0.0.0.0:0 ours").port()
	require.Equal(t, "ours", strict.meets("dial sdp two:%s", ours).Name)
	strict.bySDP("ours", "two", ours)
	until(t, "the node refuses", func() bool { return strict.misses("dial tcp two:%s", port).Refused })

	// The tables differ.
	server.end()
	c.two.says(0o644, "fabric line:/run/ntbnet/lab", "node 2", "nodes 2", "host1 10.77.0.7", hostLines[1])
	server = c.two.process(userA)
	ours = server.meets("listen tcp 0.0.0.0:0 ours").port()
	require.Equal(t, "ours", strict.meets("dial sdp two:%s", ours).Name)
	until(t, "the node refuses for its table", func() bool {
		return strings.Contains(strict.misses("dial tcp two:%s", ours).Error, "do not give this source address to the dialling node")
	})
	strict.end()
	server.end()
	plain.end()
}
