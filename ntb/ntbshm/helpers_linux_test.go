//go:build linux && (amd64 || arm64)

package ntbshm

import (
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/shm/unixsock"
	"github.com/ntbnet/ntbnet/ntb"
	"golang.org/x/sys/unix"
)

// cables returns the two ends of a connected Unix stream socket.
func cables(t testing.TB) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var conns [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "cable")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		conns[i] = c.(*net.UnixConn)
	}
	return conns[0], conns[1]
}

// own returns a cable as devices have it.
func own(t testing.TB, c net.Conn) *unixsock.Conn {
	t.Helper()
	own, err := unixsock.Own(c)
	if err != nil {
		t.Fatal(err)
	}
	return own
}

type result struct {
	dev ntb.Device
	err error
}

// goNew calls New in a goroutine.
func goNew(c *net.UnixConn, o Options) <-chan result {
	ch := make(chan result, 1)
	go func() {
		d, err := New(c, o)
		ch <- result{d, err}
	}()
	return ch
}

// pair returns the two ends of a bridge in this process.
func pair(t testing.TB, o Options) (a, b ntb.Device) {
	t.Helper()
	ca, cb := cables(t)
	other := goNew(cb, o)
	a, err := New(ca, o)
	r := <-other
	if err != nil || r.err != nil {
		t.Fatal(err, r.err)
	}
	t.Cleanup(func() { a.Close(); r.dev.Close() })
	return a, r.dev
}

// startPoller opens the descriptors of Go's poller.
func startPoller(t *testing.T) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	w.Close()
}

// settled waits until this process has no more descriptors than before: those of peers are closed in the
// background.
func settled(t *testing.T, before int) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); openFiles(t) > before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d descriptors, %d before", openFiles(t), before)
		}
	}
}

// openFiles returns the number of this process's descriptors.
func openFiles(t *testing.T) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("needs /proc: ", err)
	}
	return len(names)
}

// mappings returns the number of windows mapped into this process.
func mappings(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Skip("needs /proc: ", err)
	}
	return strings.Count(string(b), "memfd:ntbnet-window")
}
