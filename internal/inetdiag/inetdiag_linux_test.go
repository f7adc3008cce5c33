package inetdiag

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// kernel is asked by all tests, so that each finds what another has left.
var kernel Kernel

func listen(t *testing.T, config net.ListenConfig, network, address string) (*net.TCPListener, Socket) {
	t.Helper()
	ln, err := config.Listen(context.Background(), network, address)
	require.NoError(t, err)
	t.Cleanup(func() { ln.Close() })
	raw, err := ln.(*net.TCPListener).SyscallConn()
	require.NoError(t, err)
	s, err := SocketOf(raw)
	require.NoError(t, err)
	require.NotZero(t, s.Cookie)
	require.NotZero(t, s.Namespace)
	return ln.(*net.TCPListener), s
}

func lookedUp(t *testing.T, address string, port int) (Socket, bool) {
	t.Helper()
	a := netip.MustParseAddr(address)
	route, err := kernel.RouteTo(a)
	require.NoError(t, err)
	require.True(t, route.Local, address)
	s, ok, err := kernel.Listening(netip.AddrPortFrom(a, uint16(port)), route.Interface)
	require.NoError(t, err)
	if ok {
		require.Equal(t, os.Geteuid(), s.UID)
	}
	return s.Socket, ok
}

func TestTheSocketThatTheKernelChoosesIsFound(t *testing.T) {
	for _, mptcp := range []bool{false, true} {
		var config net.ListenConfig
		config.SetMultipathTCP(mptcp)
		t.Run(fmt.Sprintf("mptcp=%v", mptcp), func(t *testing.T) {
			one, first := listen(t, config, "tcp4", "127.0.0.1:0")
			port := one.Addr().(*net.TCPAddr).Port
			_, second := listen(t, config, "tcp", fmt.Sprintf("127.0.0.2:%d", port))
			require.NotEqual(t, first, second)
			for _, tc := range []struct {
				address string
				want    Socket
			}{
				{"127.0.0.1", first}, {"::ffff:127.0.0.1", first}, {"0.0.0.0", first},
				{"127.0.0.2", second}, {"127.0.0.3", Socket{}},
			} {
				got, ok := lookedUp(t, tc.address, port)
				require.Equal(t, tc.want, got, tc.address)
				require.Equal(t, tc.want != Socket{}, ok, tc.address)
			}
			_, six := listen(t, config, "tcp6", fmt.Sprintf("[::]:%d", port))
			for _, address := range []string{"::1", "::"} {
				got, _ := lookedUp(t, address, port)
				require.Equal(t, six, got, address)
			}
			_, ok := lookedUp(t, "127.0.0.3", port)
			require.False(t, ok, "a socket of IPv6 alone")
		})
	}
}

func TestASocketOfBothFamiliesIsFoundByBoth(t *testing.T) {
	ln, want := listen(t, net.ListenConfig{}, "tcp", ":0")
	port := ln.Addr().(*net.TCPAddr).Port
	addrs, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range addrs {
		ip, ok := netip.AddrFromSlice(a.(*net.IPNet).IP)
		require.True(t, ok)
		if ip.Unmap().IsLinkLocalUnicast() {
			continue // it needs its zone
		}
		got, _ := lookedUp(t, ip.String(), port)
		require.Equal(t, want, got, ip)
	}
}

// If several sockets share a port, each is found from time to time.
func TestSocketsThatShareAPortAreAllFound(t *testing.T) {
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		if e := c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
		}); e != nil {
			return e
		}
		return err
	}}
	ln, first := listen(t, config, "tcp", "127.0.0.1:0")
	_, second := listen(t, config, "tcp", ln.Addr().String())
	seen := map[Socket]int{}
	for range 400 { // one of them is missed in one of 2^399 runs
		s, _ := lookedUp(t, "127.0.0.1", ln.Addr().(*net.TCPAddr).Port)
		seen[s]++
	}
	require.Len(t, seen, 2)
	require.Positive(t, seen[first])
	require.Positive(t, seen[second])
}

func TestRoutes(t *testing.T) {
	for _, tc := range []struct {
		address, source string
		local           bool
	}{
		{"127.0.0.1", "127.0.0.1", true},
		{"127.1.2.3", "127.0.0.1", true},
		{"0.0.0.0", "127.0.0.1", true},
		{"::", "::1", true},
		{"::1", "::1", true},
		{"::ffff:127.0.0.1", "127.0.0.1", true},
		{"192.0.2.77", "", false}, // an address for documentation
		{"2001:db8::1", "", false},
	} {
		r, err := kernel.RouteTo(netip.MustParseAddr(tc.address))
		require.NoError(t, err, tc.address)
		require.Equal(t, tc.local, r.Local, tc.address)
		if tc.local {
			require.Equal(t, tc.source, r.Source.String(), tc.address)
			require.Equal(t, loopbackIndex, r.Interface, tc.address)
		}
	}
	addrs, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range addrs {
		ip, ok := netip.AddrFromSlice(a.(*net.IPNet).IP)
		require.True(t, ok)
		if ip.Unmap().IsLinkLocalUnicast() {
			r, err := kernel.RouteTo(ip)
			require.NoError(t, err, ip)
			require.False(t, r.Local, "%v has no zone", ip)
			continue
		}
		r, err := kernel.RouteTo(ip)
		require.NoError(t, err, ip)
		require.True(t, r.Local, ip)
		require.Equal(t, ip.Unmap(), r.Source, ip)
		require.Positive(t, r.Interface, ip)
	}
}

func TestZonesOfRoutes(t *testing.T) {
	interfaces, err := net.Interfaces()
	require.NoError(t, err)
	for _, i := range interfaces {
		addrs, err := i.Addrs()
		require.NoError(t, err)
		for _, a := range addrs {
			ip, _ := netip.AddrFromSlice(a.(*net.IPNet).IP)
			if ip.Is4In6() || !ip.IsLinkLocalUnicast() || i.Flags&net.FlagUp == 0 {
				continue
			}
			for _, zone := range []string{i.Name, fmt.Sprint(i.Index)} {
				r, err := kernel.RouteTo(ip.WithZone(zone))
				require.NoError(t, err)
				require.True(t, r.Local, "%v%%%s", ip, zone)
				require.Equal(t, i.Index, r.Interface)
			}
		}
	}
	_, err = kernel.RouteTo(netip.MustParseAddr("fe80::1%nosuchinterface"))
	require.Error(t, err)
}

// The kernel's answer is used only as far as it is well formed.
func FuzzAnswers(f *testing.F) {
	f.Add([]byte{20, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff})
	f.Add(diagRequest(unix.AF_INET))
	f.Add(routeRequest(netip.IPv6Loopback(), 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = eachMessage(b, func(payload []byte) error {
			_, _ = parseAnswer(payload)
			_, err := parseRoute(payload)
			return err
		})
	})
}

func BenchmarkListening(b *testing.B) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	defer ln.Close()
	to := ln.Addr().(*net.TCPAddr).AddrPort()
	for b.Loop() {
		_, ok, err := kernel.Listening(to, loopbackIndex)
		if !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
}

func BenchmarkRouteTo(b *testing.B) {
	a := netip.MustParseAddr("192.0.2.77")
	for b.Loop() {
		if _, err := kernel.RouteTo(a); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSocketOf(b *testing.B) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	defer ln.Close()
	raw, err := ln.(*net.TCPListener).SyscallConn()
	require.NoError(b, err)
	for b.Loop() {
		if _, err := SocketOf(raw); err != nil {
			b.Fatal(err)
		}
	}
}
