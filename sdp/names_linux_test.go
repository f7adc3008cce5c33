package sdp

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

// nameServer answers each question with addresses of its own, in any order.
func nameServer(t *testing.T, addrs []netip.Addr) *net.Resolver {
	t.Helper()
	server, err := net.ListenPacket("udp4", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 1500)
		for {
			n, from, err := server.ReadFrom(b)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(b[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			q := m.Questions[0]
			m.Response, m.Authoritative, m.Additionals = true, true, nil
			for _, a := range addrs {
				h := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1}
				switch {
				case a.Is4() && q.Type == dnsmessage.TypeA:
					m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: a.As4()}})
				case a.Is6() && q.Type == dnsmessage.TypeAAAA:
					m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
				}
			}
			if answer, err := m.Pack(); err == nil {
				_, _ = server.WriteTo(answer, from)
			}
		}
	}()
	t.Cleanup(func() { server.Close(); <-done })
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp4", server.LocalAddr().String())
	}}
}

// A name of several addresses reaches the server that net reaches, and fails as net does.
func TestNamesOfSeveralAddresses(t *testing.T) {
	leak.Check(t)
	f := openTCPTest(t)
	random := rand.New(rand.NewPCG(1, 2))
	all := []string{"127.0.0.1", "127.0.0.2", "127.0.0.3", "::1"}
	bySDP, refused := 0, 0
	for range 60 {
		probe, err := net.Listen("tcp", "127.0.0.9:0")
		require.NoError(t, err)
		port := portOf(t, probe.Addr())
		var servers []*named
		for _, a := range all {
			listen := []func(string, string) (net.Listener, error){nil, net.Listen, f.Listen}[random.IntN(3)]
			if listen == nil {
				continue
			}
			ln, err := listen("tcp", net.JoinHostPort(a, port))
			if err != nil {
				continue // another program has it, or there is no IPv6
			}
			servers = append(servers, serveName(ln, a))
		}
		var addrs []netip.Addr
		for _, i := range random.Perm(len(all))[:1+random.IntN(len(all))] {
			addrs = append(addrs, netip.MustParseAddr(all[i]))
		}
		tcp := net.Dialer{Resolver: nameServer(t, addrs), FallbackDelay: []time.Duration{time.Minute, -1}[random.IntN(2)], Timeout: []time.Duration{0, 30 * time.Second}[random.IntN(2)]}
		for _, network := range []string{"tcp", "tcp4", "tcp6"} {
			address := "several.example.:" + port
			c, wantErr := tcp.Dial(network, address)
			want := reached(c, wantErr)
			c, err := (&Dialer{Fabric: f, TCP: &tcp}).Dial(network, address)
			_, sdp := c.(*Conn)
			require.Equal(t, want, reached(c, err), "%s %v", network, addrs)
			require.Equal(t, fmt.Sprint(withoutServer(wantErr)), fmt.Sprint(withoutServer(err)), "%s %v", network, addrs)
			for _, s := range servers {
				if _, ours := s.Listener.(*TCPListener); s.name == want {
					require.Equal(t, ours, sdp, "%s %v: %s", network, addrs, want)
				}
			}
			if sdp {
				bySDP++
			}
			if err != nil {
				refused++
			}
		}
		for _, s := range servers {
			s.stop()
		}
		probe.Close()
	}
	require.Positive(t, bySDP)
	require.Positive(t, refused)
}

// withoutServer is an error of dialling without the name server's address in it.
func withoutServer(err error) error {
	if op, ok := err.(*net.OpError); ok {
		if dns, ok := op.Err.(*net.DNSError); ok {
			dns.Server = ""
		}
	}
	return err
}

// If the addresses of the first family take too long, the others are tried meanwhile. The
// address that takes long is one of ours whose backlog is full.
func TestTheOtherFamilyIsTriedWhenTheFirstIsSlow(t *testing.T) {
	leak.Check(t)
	f := openTCPTest(t)
	lc := ListenConfig{Fabric: f, Backlog: 1}
	slow, err := lc.Listen(t.Context(), "tcp6", "[::1]:0")
	if err != nil {
		t.Skip("no IPv6: ", err)
	}
	defer slow.Close()
	port := portOf(t, slow.Addr())
	ln, err := f.Listen("tcp4", "127.0.0.1:"+port)
	require.NoError(t, err)
	fast := serveName(ln, "fast")
	defer fast.stop()
	waiting, err := f.Dial("tcp", slow.Addr().String())
	require.NoError(t, err)
	require.IsType(t, (*Conn)(nil), waiting)
	defer waiting.Close()
	tcp := net.Dialer{Resolver: nameServer(t, []netip.Addr{netip.IPv6Loopback(), netip.MustParseAddr("127.0.0.1")})}
	addrs, err := tcp.Resolver.LookupIP(t.Context(), "ip", "both.example.")
	require.NoError(t, err)
	if addrs[0].To4() != nil {
		t.Skip("IPv4 is preferred here: ", addrs)
	}
	require.Equal(t, "fast", reached((&Dialer{Fabric: f, TCP: &tcp}).Dial("tcp", "both.example.:"+port)))
	require.EqualValues(t, 2, f.Stats().Networks.DialSDP)
}

// What localhost means is found anew after a second.
func TestWhatLocalhostMeansIsKeptForASecond(t *testing.T) {
	leak.Check(t)
	f := openTCPTest(t)
	ln, err := f.Listen("tcp", "127.0.0.9:0")
	require.NoError(t, err)
	s := serveName(ln, "nine")
	defer s.stop()
	address := "localhost:" + portOf(t, ln.Addr())
	keep := func(at time.Time) {
		f.stack.localhost.Store(&resolved{"tcp", []netip.Addr{netip.MustParseAddr("127.0.0.9")}, at})
	}
	keep(time.Now().Add(time.Hour)) // as after the clock was set
	require.NotEqual(t, "nine", reached(f.Dial("tcp", address)))
	keep(time.Now().Add(-localhostKept))
	require.NotEqual(t, "nine", reached(f.Dial("tcp", address)))
	require.WithinDuration(t, time.Now(), f.stack.localhost.Load().at, 30*time.Second)
	for range 30 { // a second may go by
		keep(time.Now())
		if reached(f.Dial("tcp", address)) == "nine" {
			require.NotEqual(t, "nine", reached(f.Dial("tcp4", address)), "another network")
			return
		}
	}
	t.Fatal("what is kept is not used")
}

// A thread that has entered another network namespace reaches that one's server.
func TestADialIsOfTheNamespaceOfItsThread(t *testing.T) {
	leak.Check(t)
	f := openTCPTest(t)
	ln, err := f.Listen("tcp", "0.0.0.0:0")
	require.NoError(t, err)
	here := serveName(ln, "here")
	defer here.stop()
	address := "0.0.0.0:" + portOf(t, ln.Addr())
	require.Equal(t, "here", reached(f.Dial("tcp", address)))

	runtime.LockOSThread() // not unlocked where the thread cannot come back
	old, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(old)
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		t.Logf("WARNING: network namespaces are forbidden here: %v", err)
		t.Skip("network namespaces are forbidden")
	}
	who, sdp := way(f, "tcp", address)
	want := reached(net.Dial("tcp", address))
	require.NoError(t, unix.Setns(old, unix.CLONE_NEWNET))
	runtime.UnlockOSThread()
	require.Equal(t, want, who)
	require.NotEqual(t, "here", who)
	require.False(t, sdp)
	who, sdp = way(f, "tcp", address)
	require.Equal(t, "here", who)
	require.True(t, sdp)
}

// The Cancel of a net.Dialer ends a dial by SDP too.
func TestCancelOfANetDialer(t *testing.T) {
	leak.Check(t)
	f := openTCPTest(t)
	lc := ListenConfig{Fabric: f, Backlog: 1}
	ln, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	first, err := f.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer first.Close() // the backlog is full
	for _, host := range []string{"127.0.0.1", "one.example."} {
		canceled := make(chan struct{})
		tcp := &net.Dialer{Resolver: nameServer(t, []netip.Addr{netip.MustParseAddr("127.0.0.1")})}
		tcp.Cancel = canceled                                           //lint:ignore SA1019 old programs set it
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // a guard
		time.AfterFunc(10*time.Millisecond, func() { close(canceled) })
		c, err := (&Dialer{Fabric: f, TCP: tcp}).DialContext(ctx, "tcp", net.JoinHostPort(host, portOf(t, ln.Addr())))
		require.Nil(t, c)
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, ctx.Err(), "it went on")
		cancel()
	}
}
