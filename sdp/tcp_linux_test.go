package sdp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http/httptrace"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// named sends its name on each connection, until it is closed.
type named struct {
	net.Listener
	name string
	done sync.WaitGroup
}

func serveName(ln net.Listener, name string) *named {
	s := &named{Listener: ln, name: name}
	s.done.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, name)
			c.Close()
		}
	})
	return s
}

func (s *named) stop() {
	s.Close()
	s.done.Wait()
}

// reached returns which server a dial reached: its name, or why there is none.
func reached(c net.Conn, err error) string {
	if err != nil {
		var errno syscall.Errno
		if errors.As(err, &errno) {
			return errno.Error()
		}
		return err.Error()
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(60 * time.Second))
	name, err := io.ReadAll(c)
	if err != nil {
		return err.Error()
	}
	return string(name)
}

// way dials and returns which server it reached, and whether that was by SDP.
func way(f *Fabric, network, address string) (who string, sdp bool) {
	c, err := f.Dial(network, address)
	if err == nil {
		_, sdp = c.(*Conn)
	}
	return reached(c, err), sdp
}

// Each of Networks is served here, and no other one is.
func TestNetworksAreServed(t *testing.T) {
	f := openTCPTest(t)
	for _, network := range Networks() {
		ln, err := f.Listen(network, ":0")
		require.NoError(t, err)
		s := serveName(ln, network)
		who, bySDP := way(f, network, ln.Addr().String())
		require.Equal(t, network, who)
		require.True(t, bySDP, network)
		s.stop()
	}
	ln, err := f.Listen("unix", filepath.Join(t.TempDir(), "socket"))
	require.NoError(t, err)
	defer ln.Close()
	require.IsType(t, new(net.UnixListener), ln)
}

func portOf(t testing.TB, a net.Addr) string {
	t.Helper()
	_, port, err := net.SplitHostPort(a.String())
	require.NoError(t, err)
	return port
}

// zoned returns the link-local addresses of this machine, with their zones.
func zoned(t testing.TB) (own []string) {
	t.Helper()
	interfaces, err := net.Interfaces()
	require.NoError(t, err)
	for _, i := range interfaces {
		addrs, err := i.Addrs()
		require.NoError(t, err)
		for _, a := range addrs {
			if ip := a.(*net.IPNet).IP; ip.To4() == nil && ip.IsLinkLocalUnicast() && i.Flags&net.FlagUp != 0 {
				own = append(own, ip.String()+"%"+i.Name)
			}
		}
	}
	return own
}

// ownAddresses returns the global addresses of this machine, without loopback.
func ownAddresses(t testing.TB) (own []string) {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range addrs {
		if ip := a.(*net.IPNet).IP; ip.IsGlobalUnicast() {
			own = append(own, ip.String())
		}
	}
	return own
}

func openTCPTest(t *testing.T) *Fabric {
	t.Helper()
	f, err := Open("shm:" + fabrictest.Name(t))
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// There are two servers on one port, one of which is ours. Each address reaches the
// server that has it, and an address that neither has reaches none.
func TestNetworkTCPReachesTheServerThatNetReaches(t *testing.T) {
	leak.Check(t)
	f := openTCPTest(t)
	ln, err := f.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ours := serveName(ln, "ours")
	defer ours.stop()
	port := portOf(t, ours.Addr())
	ln, err = net.Listen("tcp", "127.0.0.2:"+port)
	require.NoError(t, err)
	plain := serveName(ln, "plain")
	defer plain.stop()
	for _, host := range append(ownAddresses(t), "127.0.0.1", "127.0.0.2", "127.0.0.3", "::1", "localhost", "", "0.0.0.0", "::", "::ffff:127.0.0.1", "::ffff:127.0.0.2") {
		for _, network := range []string{"tcp", "tcp4", "tcp6"} {
			address := net.JoinHostPort(host, port)
			want := reached(net.Dial(network, address))
			got, sdp := way(f, network, address)
			require.Equal(t, want, got, "%s %s", network, address)
			require.Equal(t, want == "ours", sdp, "%s %s", network, address)
		}
	}
	third, err := f.Listen("tcp", "127.0.0.3:"+port)
	require.NoError(t, err)
	third.Close()
}

// Each pair of a listener and an address that can use SDP does so.
func TestEachPairThatCanIsSDP(t *testing.T) {
	f := openTCPTest(t)
	own := ownAddresses(t)
	var own4, own6 []string
	for _, a := range own {
		if netip.MustParseAddr(a).Is4() {
			own4 = append(own4, a)
		} else {
			own6 = append(own6, a)
		}
	}
	loopback := []string{"127.0.0.1", "localhost"}
	four := append([]string{"127.0.0.1", "localhost", "127.0.0.2", "0.0.0.0", "", "::ffff:127.0.0.1"}, own4...)
	six := append(append([]string{"::1", "::"}, own6...), zoned(t)...)
	for _, tc := range []struct {
		network, listen string
		hosts           []string
	}{
		{"tcp", "localhost", loopback},
		{"tcp", "127.0.0.1", append(loopback, "0.0.0.0", "", "::ffff:127.0.0.1")},
		{"tcp", "127.0.0.2", []string{"127.0.0.2"}},
		{"tcp", "::1", []string{"::1", "::"}},
		{"tcp", "", append(four, six...)},
		{"tcp", "::", append(four, six...)},
		{"tcp", "0.0.0.0", four},
		{"tcp4", "", four},
		{"tcp6", "", six},
		{"tcp6", "::", six},
	} {
		ln, err := f.Listen(tc.network, net.JoinHostPort(tc.listen, "0"))
		require.NoError(t, err)
		s := serveName(ln, "ours")
		for _, host := range tc.hosts {
			got, sdp := way(f, "tcp", net.JoinHostPort(host, portOf(t, ln.Addr())))
			require.Equal(t, "ours", got, "%s %q, %q", tc.network, tc.listen, host)
			require.True(t, sdp, "%s %q, %q: want SDP", tc.network, tc.listen, host)
		}
		s.stop()
	}
	for _, a := range append(own, zoned(t)...) {
		ln, err := f.Listen("tcp", net.JoinHostPort(a, "0"))
		require.NoError(t, err)
		address := net.JoinHostPort(a, portOf(t, ln.Addr()))
		c, err := f.Dial("tcp", address)
		require.NoError(t, err)
		require.IsType(t, (*Conn)(nil), c, a)
		s, err := ln.Accept()
		require.NoError(t, err)
		p, err := net.Dial("tcp", address)
		require.NoError(t, err)
		q, err := ln.Accept()
		require.NoError(t, err)
		port := func(a net.Addr) int { return a.(*net.TCPAddr).Port }
		for _, ends := range [][2]net.Conn{{c, p}, {s, q}} { // addresses are equal, except the port of the dialling endpoint
			require.Equal(t, ends[1].LocalAddr().(*net.TCPAddr).IP, ends[0].LocalAddr().(*net.TCPAddr).IP)
			require.Equal(t, ends[1].LocalAddr().(*net.TCPAddr).Zone, ends[0].LocalAddr().(*net.TCPAddr).Zone)
			require.Equal(t, ends[1].RemoteAddr().(*net.TCPAddr).IP, ends[0].RemoteAddr().(*net.TCPAddr).IP)
			require.Equal(t, ends[1].RemoteAddr().(*net.TCPAddr).Zone, ends[0].RemoteAddr().(*net.TCPAddr).Zone)
		}
		require.Equal(t, port(ln.Addr()), port(c.RemoteAddr()))
		require.Equal(t, port(ln.Addr()), port(s.LocalAddr()))
		require.Equal(t, port(c.LocalAddr()), port(s.RemoteAddr()))
		for _, x := range []io.Closer{c, s, p, q, ln} {
			x.Close()
		}
	}
}

// There are random sets of listeners on one port, ours and plain. Listen does what net's
// does, and Dial reaches what net's reaches, by SDP if it is ours.
func TestRandomSetsOfListeners(t *testing.T) {
	leak.Check(t)
	f := openTCPTest(t)
	sets := 1000
	if testing.Short() || raceEnabled {
		sets = 100
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	own := ownAddresses(t)
	listened := append([]string{"127.0.0.1", "127.0.0.2", "127.0.0.3", "::1", "", "0.0.0.0", "::"}, own...)
	dialled := append([]string{"127.0.0.1", "127.0.0.2", "127.0.0.3", "::1", "", "localhost", "::ffff:127.0.0.1"}, own...)
	networks := []string{"tcp", "tcp4", "tcp6"}
	counts := map[bool]int{}
	for range sets {
		checkSet(t, f, r, networks, listened, dialled, counts)
	}
	require.Positive(t, counts[true])
	require.Positive(t, counts[false])
}

func checkSet(t *testing.T, f *Fabric, r *rand.Rand, networks, listened, dialled []string, counts map[bool]int) {
	t.Helper()
	first, port := fabrictest.OwnPort(t, r)
	defer first.Close()
	var servers []*named
	defer func() {
		for _, s := range servers {
			s.stop()
		}
	}()
	var set []string
	for i := range 1 + r.IntN(5) {
		network := networks[r.IntN(len(networks))]
		address := net.JoinHostPort(listened[r.IntN(len(listened))], port)
		name := fmt.Sprintf("plain %d %s %s", i, network, address)
		ln, err := net.Listen(network, address)
		if r.IntN(2) == 0 {
			name = "ours" + strings.TrimPrefix(name, "plain")
			if err == nil {
				ln.Close()
			}
			want := err
			ln, err = f.Listen(network, address)
			require.Equal(t, want == nil, err == nil, "%s beside %q: net says %v, ours %v", name, set, want, err)
			if want != nil {
				require.Equal(t, want.Error(), err.Error())
			}
		}
		if err != nil {
			continue
		}
		servers = append(servers, serveName(ln, name))
		set = append(set, name)
	}
	for _, host := range dialled {
		network, address := networks[r.IntN(len(networks))], net.JoinHostPort(host, port)
		want := reached(net.Dial(network, address))
		got, sdp := way(f, network, address)
		require.Equal(t, want, got, "%s %s with %q", network, address, set)
		require.Equal(t, strings.HasPrefix(want, "ours"), sdp, "%s %s with %q", network, address, set)
		counts[sdp]++
	}
}

// reusePort is a Control that lets several sockets share a port.
func reusePort(_, _ string, c syscall.RawConn) (err error) {
	if e := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	}); e != nil {
		return e
	}
	return err
}

// If servers share a port by SO_REUSEPORT, each is reached from time to time, ours by
// SDP and plain ones by TCP.
func TestServersThatShareAPort(t *testing.T) {
	leak.Check(t)
	f := openTCPTest(t)
	config := &net.ListenConfig{Control: reusePort}
	listen := func(ours bool, name, address string) *named {
		var ln net.Listener
		var err error
		if ours {
			ln, err = (&ListenConfig{Fabric: f, TCP: config}).Listen(context.Background(), "tcp", address)
		} else {
			ln, err = config.Listen(context.Background(), "tcp", address)
		}
		require.NoError(t, err)
		return serveName(ln, name)
	}
	one := listen(true, "ours 1", "127.0.0.1:0")
	defer one.stop()
	two := listen(true, "ours 2", one.Addr().String())
	defer two.stop()
	seen := map[string]int{}
	for range 200 {
		who, sdp := way(f, "tcp", one.Addr().String())
		require.True(t, sdp)
		seen[who]++
	}
	require.Len(t, seen, 2, "%v", seen)
	plain := listen(false, "plain", one.Addr().String())
	defer plain.stop()
	clear(seen)
	for range 400 {
		who, sdp := way(f, "tcp", one.Addr().String())
		require.False(t, sdp && who == "plain")
		seen[who]++
	}
	require.Len(t, seen, 3, "%v", seen)
}

// Addresses are those of TCP, and distinguish living connections.
func TestNetworkTCPHasTCPAddresses(t *testing.T) {
	leak.Check(t)
	f := openTCPTest(t)
	ln, err := f.Listen("tcp", ":0")
	require.NoError(t, err)
	defer ln.Close()
	port := ln.Addr().(*net.TCPAddr).Port
	locals, remotes := map[string]bool{}, map[string]bool{}
	for i := range 300 {
		host := []string{"127.0.0.1", "127.0.0.2", "::1", "localhost"}[i%4]
		c, err := f.Dial("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		require.NoError(t, err)
		defer c.Close()
		require.IsType(t, (*Conn)(nil), c)
		s, err := ln.Accept()
		require.NoError(t, err)
		defer s.Close()
		for _, pair := range [][2]net.Addr{{c.LocalAddr(), s.RemoteAddr()}, {c.RemoteAddr(), s.LocalAddr()}} {
			a, b := pair[0].(*net.TCPAddr), pair[1].(*net.TCPAddr)
			require.Equal(t, a.String(), b.String())
			require.True(t, a.IP.Equal(b.IP))
			require.Equal(t, "tcp", a.Network())
			require.True(t, a.IP.IsLoopback())
		}
		if host != "localhost" {
			require.Equal(t, net.JoinHostPort(host, strconv.Itoa(port)), c.RemoteAddr().String())
		}
		require.Equal(t, port, c.RemoteAddr().(*net.TCPAddr).Port)
		// net comes from there too.
		p, err := net.Dial("tcp", c.RemoteAddr().String())
		require.NoError(t, err)
		require.Equal(t, p.LocalAddr().(*net.TCPAddr).IP.String(), c.LocalAddr().(*net.TCPAddr).IP.String())
		require.Equal(t, len(p.LocalAddr().(*net.TCPAddr).IP), len(c.LocalAddr().(*net.TCPAddr).IP))
		q, err := ln.Accept()
		require.NoError(t, err)
		require.Equal(t, len(q.LocalAddr().(*net.TCPAddr).IP), len(s.LocalAddr().(*net.TCPAddr).IP))
		require.Equal(t, len(q.RemoteAddr().(*net.TCPAddr).IP), len(s.RemoteAddr().(*net.TCPAddr).IP))
		p.Close()
		q.Close()
		local, remote := strconv.Itoa(c.LocalAddr().(*net.TCPAddr).Port), s.RemoteAddr().String()
		require.False(t, locals[local] || remotes[remote], "%s, %s is another's", local, remote)
		locals[local], remotes[remote] = true, true
		_, err = c.Read(nil)
		require.NoError(t, err)
	}
	c, err := f.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	c.Close()
	_, err = c.Write([]byte("x"))
	var op *net.OpError
	require.ErrorAs(t, err, &op)
	require.Equal(t, "tcp", op.Net)
	require.Equal(t, c.LocalAddr(), op.Source)
}

// A listener of network "tcp" accepts a connection of network "sdp". The connection
// has TCP's addresses there too.
func TestAListenerOfNetworkTCPHasTCPAddressesOnly(t *testing.T) {
	leak.Check(t)
	onFabrics(t, func(t *testing.T, f *Fabric) {
		ln, err := f.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer ln.Close()
		seen := map[string]bool{}
		for range 50 {
			c, err := f.Dial("sdp", ln.Addr().String())
			require.NoError(t, err)
			defer c.Close()
			require.IsType(t, (*Addr)(nil), c.RemoteAddr())
			s, err := ln.Accept()
			require.NoError(t, err)
			defer s.Close()
			require.Equal(t, ln.Addr().String(), s.LocalAddr().(*net.TCPAddr).String())
			require.True(t, s.RemoteAddr().(*net.TCPAddr).IP.IsLoopback())
			require.False(t, seen[s.RemoteAddr().String()])
			seen[s.RemoteAddr().String()] = true
		}
	})
}

func TestDeadlineOfAListenerOfNetworkTCP(t *testing.T) {
	leak.Check(t)
	f := openTCPTest(t)
	ln, err := f.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	l := ln.(interface{ SetDeadline(time.Time) error })
	require.NoError(t, l.SetDeadline(time.Now().Add(10*time.Millisecond)))
	_, err = ln.Accept()
	var ne net.Error
	require.ErrorAs(t, err, &ne)
	require.True(t, ne.Timeout())
	require.NoError(t, l.SetDeadline(time.Time{}))
	for _, dial := range []func(network, address string) (net.Conn, error){net.Dial, f.Dial} {
		c, err := dial("tcp", ln.Addr().String())
		require.NoError(t, err)
		s, err := ln.Accept()
		require.NoError(t, err)
		require.IsType(t, c, s)
		c.Close()
		s.Close()
	}
	require.NoError(t, ln.Close())
	require.ErrorIs(t, l.SetDeadline(time.Now()), net.ErrClosed)
}

// Networks that are not ours are passed to net.
func TestOtherNetworksAreNets(t *testing.T) {
	f := openTCPTest(t)
	path := t.TempDir() + "/s"
	ln, err := f.Listen("unix", path)
	require.NoError(t, err)
	require.IsType(t, (*net.UnixListener)(nil), ln)
	s := serveName(ln, "unix")
	defer s.stop()
	who, sdp := way(f, "unix", path)
	require.Equal(t, "unix", who)
	require.False(t, sdp)
	c, err := f.Dial("udp", "127.0.0.1:9")
	require.NoError(t, err)
	require.IsType(t, (*net.UDPConn)(nil), c)
	c.Close()
	_, want := net.Listen("udp", "127.0.0.1:0")
	_, err = f.Listen("udp", "127.0.0.1:0")
	require.Equal(t, want.Error(), err.Error())
	_, want = net.Dial("nosuch", "127.0.0.1:0")
	_, err = f.Dial("nosuch", "127.0.0.1:0")
	require.Equal(t, want.Error(), err.Error())
}

// By the descriptor of a listener another process may accept, so dials go by TCP then.
func TestFileOfAListenerAccepts(t *testing.T) {
	f := openTCPTest(t)
	ln, err := f.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	file, err := ln.(*TCPListener).File()
	require.NoError(t, err)
	copied, err := net.FileListener(file)
	require.NoError(t, err)
	defer copied.Close()
	require.NoError(t, file.Close())
	c, err := f.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	require.IsType(t, (*net.TCPConn)(nil), c)
	require.NoError(t, copied.(*net.TCPListener).SetDeadline(time.Now().Add(30*time.Second)))
	a, err := copied.Accept()
	require.NoError(t, err)
	require.NoError(t, a.Close())
	_, err = c.Read(make([]byte, 1))
	require.Equal(t, io.EOF, err)
}

// httptrace learns of connections by SDP what it learns of those by TCP.
func TestTracesOfConnections(t *testing.T) {
	leak.Check(t)
	f := openTCPTest(t)
	ln, err := f.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := serveName(ln, "ours")
	defer s.stop()
	for _, host := range []string{"127.0.0.1", "localhost"} {
		trace := func(dial func(ctx context.Context, network, address string) (net.Conn, error)) (calls []string) {
			var mu sync.Mutex
			note := func(format string, args ...any) {
				mu.Lock()
				defer mu.Unlock()
				calls = append(calls, fmt.Sprintf(format, args...))
			}
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
				DNSStart:     func(i httptrace.DNSStartInfo) { note("look up %s", i.Host) },
				DNSDone:      func(i httptrace.DNSDoneInfo) { note("found %v, %v", i.Addrs, i.Err) },
				ConnectStart: func(network, address string) { note("connect %s %s", network, address) },
				ConnectDone:  func(network, address string, err error) { note("connected %s %s: %v", network, address, err) },
			})
			require.Equal(t, "ours", reached(dial(ctx, "tcp", net.JoinHostPort(host, portOf(t, ln.Addr())))))
			mu.Lock()
			defer mu.Unlock()
			return calls
		}
		want := trace((&net.Dialer{}).DialContext)
		require.Equal(t, want, trace(f.DialContext))
		require.GreaterOrEqual(t, len(want), 2)
	}
	require.EqualValues(t, 2, f.Stats().Networks.DialSDP)
}

// httptrace learns of a name's addresses, but not of the connections to the name server.
func TestTracesOfANameWithoutTheNameServer(t *testing.T) {
	leak.Check(t)
	f := openTCPTest(t)
	ln, err := f.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := serveName(ln, "ours")
	defer s.stop()
	tcp := &net.Dialer{Resolver: nameServer(t, []netip.Addr{netip.MustParseAddr("127.0.0.1")})}
	trace := func(dial func(ctx context.Context, network, address string) (net.Conn, error)) (calls []string) {
		var mu sync.Mutex
		note := func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			calls = append(calls, fmt.Sprintf(format, args...))
		}
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			DNSDone:      func(i httptrace.DNSDoneInfo) { note("found %v, %v", i.Addrs, i.Err) },
			ConnectStart: func(network, address string) { note("connect %s %s", network, address) },
		})
		require.Equal(t, "ours", reached(dial(ctx, "tcp", net.JoinHostPort("one.example.", portOf(t, ln.Addr())))))
		mu.Lock()
		defer mu.Unlock()
		return calls
	}
	want := trace(tcp.DialContext)
	require.Len(t, want, 2)
	require.Equal(t, want, trace((&Dialer{Fabric: f, TCP: tcp}).DialContext))
}

// A Dialer that needs its socket has one.
func TestADialerThatNeedsASocketHasOne(t *testing.T) {
	leak.Check(t)
	f := openTCPTest(t)
	ln, err := f.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := serveName(ln, "ours")
	defer s.stop()
	called := 0
	control := func(_, _ string, _ syscall.RawConn) error { called++; return nil }
	for _, d := range []*net.Dialer{
		{Control: control},
		{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 5)}},
	} {
		c, err := (&Dialer{Fabric: f, TCP: d}).Dial("tcp", ln.Addr().String())
		require.NoError(t, err)
		require.IsType(t, (*net.TCPConn)(nil), c)
		if d.LocalAddr != nil {
			require.Equal(t, "127.0.0.5", c.LocalAddr().(*net.TCPAddr).IP.String())
		}
		require.Equal(t, "ours", reached(c, nil))
	}
	require.Equal(t, 1, called)
	require.EqualValues(t, 2, f.Stats().Networks.DialNeedsSocket)
}

// The resolver and the limits of Dialer.TCP apply to SDP too.
func TestADialersTCPCountsForSDP(t *testing.T) {
	leak.Check(t)
	f := openTCPTest(t)
	ln, err := f.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := serveName(ln, "ours")
	defer s.stop()
	past := &Dialer{Fabric: f, TCP: &net.Dialer{Deadline: time.Now().Add(-time.Second)}}
	for _, host := range []string{"127.0.0.1", "localhost"} {
		address := net.JoinHostPort(host, portOf(t, ln.Addr()))
		_, err = past.Dial("tcp", address)
		var ne net.Error
		require.ErrorAs(t, err, &ne, host)
		require.True(t, ne.Timeout(), host)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, want := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		_, err = f.DialContext(ctx, "tcp", address)
		require.Error(t, err)
		if host == "127.0.0.1" {
			require.Equal(t, want.Error(), err.Error())
			continue
		}
		// Package net looks at both, and takes one: that the name is known, and that ctx has ended.
		require.Contains(t, []string{
			"dial tcp: lookup localhost: operation was canceled",
			"dial tcp " + ln.Addr().String() + ": operation was canceled",
			"dial tcp " + net.JoinHostPort("::1", portOf(t, ln.Addr())) + ": operation was canceled",
		}, err.Error())
	}
}

// There are several Accepts, dials of both kinds, and Close at any moment. Each dial
// reaches the listener or is refused, and nothing is left.
func TestAListenerOfNetworkTCPClosesAtAnyMoment(t *testing.T) {
	leak.Check(t)
	f := openTCPTest(t)
	rounds := 100
	if testing.Short() || raceEnabled {
		rounds = 20
	}
	for range rounds {
		ln, err := f.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				for {
					c, err := ln.Accept()
					if err != nil {
						if !errors.Is(err, net.ErrClosed) {
							t.Error(err)
						}
						return
					}
					c.Close()
				}
			})
		}
		for _, dial := range []func(network, address string) (net.Conn, error){net.Dial, f.Dial, f.Dial} {
			all.Go(func() {
				for {
					c, err := dial("tcp", ln.Addr().String())
					if err != nil {
						return // refused, or reset where it waited
					}
					c.Close()
				}
			})
		}
		time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
		require.NoError(t, ln.Close())
		require.ErrorIs(t, ln.Close(), net.ErrClosed)
		all.Wait()
	}
	require.Empty(t, f.stack.tcpPorts.used)
}

func TestPortsOfDiallingEnds(t *testing.T) {
	for kernels, want := range map[string][2]int{
		"32768\t60999\n": {32768, 61000},
		"1024 65535":     {1024, 1024},
		"2000 65535":     {1024, 1024},
		"10000 65535":    {10000, 65536},
		"1 1000":         {1024, 1024},
		"":               {32768, 61000},
		"60999 32768":    {32768, 61000},
		"32768":          {32768, 61000},
		"a b":            {32768, 61000},
	} {
		first, end := kernelPorts([]byte(kernels))
		require.Equal(t, want, [2]int{first, end}, "%q", kernels)
	}
	s := portSet{used: map[uint16]struct{}{}, first: 1026, end: 65534, next: 1025}
	seen := map[uint16]bool{}
	for range 4 {
		port, ok := s.take()
		require.True(t, ok)
		seen[port] = true
	}
	require.Equal(t, map[uint16]bool{1024: true, 1025: true, 65534: true, 65535: true}, seen)
	_, ok := s.take()
	require.False(t, ok)
	s.release(65534)
	port, ok := s.take()
	require.True(t, ok)
	require.EqualValues(t, 65534, port)
}

// An error of a dial by network "tcp" is net's also where only the fabric knows the name.
func TestADialOfANodeFailsAsNetsDo(t *testing.T) {
	onFabrics(t, func(t *testing.T, f *Fabric) {
		for _, network := range []string{"tcp", "tcp4"} {
			_, err := (&Dialer{Fabric: f}).Dial(network, "node1:1")
			op := new(net.OpError)
			require.ErrorAs(t, err, &op)
			require.Equal(t, network, op.Net)
			require.IsType(t, &net.TCPAddr{}, op.Addr)
			require.ErrorIs(t, err, syscall.ECONNREFUSED)
		}
	})
}
