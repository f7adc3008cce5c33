package inetdiag

import (
	"net"
	"net/netip"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// namespaces moves the thread of a test between the network namespace that it is in and a
// new one. It skips the test where that is forbidden.
type namespaces struct {
	t         *testing.T
	here, new int
}

func newNamespaces(t *testing.T) *namespaces {
	t.Helper()
	runtime.LockOSThread() // a thread that is not in its own namespace again ends with the test
	n := &namespaces{t: t, here: openNamespace(t)}
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		unix.Close(n.here)
		runtime.UnlockOSThread()
		t.Logf("WARNING: network namespaces are forbidden here: %v", err)
		t.Skip("network namespaces are forbidden")
	}
	n.new = openNamespace(t)
	n.enter(n.here)
	t.Cleanup(func() {
		n.enter(n.here)
		runtime.UnlockOSThread()
		unix.Close(n.here)
		unix.Close(n.new)
	})
	return n
}

func openNamespace(t *testing.T) int {
	t.Helper()
	fd, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	return fd
}

func (n *namespaces) enter(fd int) {
	n.t.Helper()
	require.NoError(n.t, unix.Setns(fd, unix.CLONE_NEWNET))
}

// A thread that has gone to another network namespace is answered for that one, by a
// Kernel that has sockets of the one before, and other threads for theirs.
func TestANamespaceThatTheThreadEntersCounts(t *testing.T) {
	leak.Check(t)
	n := newNamespaces(t)
	var k Kernel
	defer k.Close()
	ask := func(port uint16) (Socket, bool) {
		s, ok, err := k.Listening(netip.AddrPortFrom(netip.IPv4Unspecified(), port), loopbackIndex)
		require.NoError(t, err)
		return s.Socket, ok
	}
	ln, here := listen(t, net.ListenConfig{}, "tcp4", "0.0.0.0:0")
	port := uint16(ln.Addr().(*net.TCPAddr).Port)
	got, _ := ask(port)
	require.Equal(t, here, got)
	n.enter(n.new)
	_, ok := ask(port)
	require.False(t, ok)
	_, there := listen(t, net.ListenConfig{}, "tcp4", ln.Addr().String())
	require.NotEqual(t, here.Namespace, there.Namespace)
	for range 20 {
		got, _ = ask(port)
		require.Equal(t, there, got)
		other := make(chan Socket)
		go func() { s, _ := ask(port); other <- s }()
		require.Equal(t, here, <-other, "asked by another thread")
		n.enter(n.here)
		got, _ = ask(port)
		require.Equal(t, here, got)
		n.enter(n.new)
	}
}

// Routes are those of the thread's namespace too.
func TestRoutesAreThoseOfTheNamespace(t *testing.T) {
	leak.Check(t)
	var own netip.Addr
	addrs, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range addrs {
		if ip, _ := netip.AddrFromSlice(a.(*net.IPNet).IP); !ip.IsLoopback() && !ip.IsLinkLocalUnicast() {
			own = ip.Unmap()
		}
	}
	if !own.IsValid() {
		t.Skip("this machine has no address but loopback")
	}
	n := newNamespaces(t)
	var k Kernel
	defer k.Close()
	for range 3 {
		r, err := k.RouteTo(own)
		require.NoError(t, err)
		require.True(t, r.Local)
		n.enter(n.new)
		r, err = k.RouteTo(own)
		require.NoError(t, err)
		require.False(t, r.Local)
		n.enter(n.here)
	}
}

// Questions at the same time are answered, each its own, also while the Kernel is closed
// and after it. Nothing is left.
func TestQuestionsAtTheSameTime(t *testing.T) {
	leak.Check(t)
	var k Kernel
	var sockets [4]Socket
	var ports [4]uint16
	for i := range sockets {
		var ln *net.TCPListener
		ln, sockets[i] = listen(t, net.ListenConfig{}, "tcp4", "127.0.0.1:0")
		ports[i] = uint16(ln.Addr().(*net.TCPAddr).Port)
	}
	var all sync.WaitGroup
	half := make(chan struct{}, len(sockets))
	for i := range sockets {
		all.Go(func() {
			for n := range 400 {
				s, ok, err := k.Listening(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), ports[i]), loopbackIndex)
				if s.Socket != sockets[i] || !ok || err != nil {
					t.Errorf("got %v, %v, %v, want %v", s, ok, err, sockets[i])
				}
				if n == 200 {
					half <- struct{}{}
				}
			}
		})
	}
	for range sockets {
		<-half
	}
	k.Close()
	all.Wait()
	k.Close()
}

// One socket of a kind, and the directory of threads, are all that is kept.
func TestWhatIsKept(t *testing.T) {
	leak.Check(t)
	var k Kernel
	for range 10 {
		_, _, err := k.Listening(netip.MustParseAddrPort("127.0.0.1:1"), loopbackIndex)
		require.NoError(t, err)
		_, err = k.RouteTo(netip.MustParseAddr("192.0.2.77"))
		require.NoError(t, err)
	}
	a := k.kept.Load()
	require.NotNil(t, a)
	first := *a
	_, _, err := k.Listening(netip.MustParseAddrPort("127.0.0.1:1"), loopbackIndex)
	require.NoError(t, err)
	require.Equal(t, first.sockets, k.kept.Load().sockets)
	for _, s := range first.sockets {
		require.GreaterOrEqual(t, int(s), 0)
	}
	k.Close()
	for _, fd := range []int{int(first.sockets[diag]), int(first.sockets[route]), first.tasks} {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		require.Equal(t, syscall.EBADF, err)
	}
}

// Where the directory of threads cannot be had, no socket is kept.
func TestWithoutNamespacesNamesNothingIsKept(t *testing.T) {
	leak.Check(t)
	var k Kernel
	defer k.Close()
	a := newAsker()
	a.keep = true
	k.kept.Store(a)
	_, _, err := k.Listening(netip.MustParseAddrPort("127.0.0.1:1"), loopbackIndex)
	require.NoError(t, err)
	require.Same(t, a, k.kept.Load())
	require.Equal(t, [2]Netlink{-1, -1}, a.sockets)
}

func TestNumbersOfThreads(t *testing.T) {
	for status, want := range map[string]bool{
		"":                                  false,
		"Name:\tx\nPid:\t7\n":               false, // of a kernel that does not list them
		"Pid:\t7\nNSpid:\t7\nNSpgid:\t7\n":  true,
		"Pid:\t70\nNSpid:\t70\t7\nNSsid:\t": false,
		"Pid:\t7\nNSpid:\t7\t7\n":           false,
	} {
		require.Equal(t, want, sameNumbers(status), "%q", status)
	}
}
