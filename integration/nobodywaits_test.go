//go:build linux

package integration

import (
	"bufio"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/hostdir"
	"github.com/ntbnet/ntbnet/internal/shm/unixsock"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/ntbnet/ntbnet/internal/testing/hostile"
	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// oldKernel has programs go without what Linux has since 6.16 against files that nobody wants.
const oldKernel = "-X github.com/ntbnet/ntbnet/internal/shm/unixsock.oldKernel=yes"

// A peer sends files that take an hour to close, in each phase of each program, and no program
// waits for them.
func TestNobodyWaits(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the programs once more")
	}
	old, err := build("..", "-ldflags="+oldKernel, "./cmd/sdp-proxy", "./cmd/sdp-perf", "./cmd/ntbnet", "./cmd/ntb-ivshmem-server")
	require.NoError(t, err)
	defer os.RemoveAll(old)
	for kernel, dir := range map[string]string{"this kernel": programs, "old kernel": old} {
		t.Run(kernel, func(t *testing.T) {
			t.Run("members", func(t *testing.T) { membersDoNotWait(t, dir) })
			t.Run("beside a false owner", func(t *testing.T) { openDoesNotWait(t, dir) })
			t.Run("proxy of a Unix socket", func(t *testing.T) { proxyDoesNotWait(t, dir) })
			t.Run("ivshmem server", func(t *testing.T) { ivshmemServerDoesNotWait(t, dir) })
		})
	}
}

// sendSlow sends files that take an hour to close, unless the kernel refuses them, and drops its own
// descriptors.
func sendSlow(t *testing.T, c *unixsock.Conn) {
	slow := hostile.Lingerer(t)
	for range 4 {
		if _, err := c.WriteFiles([]byte{'x'}, slow); err != nil {
			break
		}
	}
	go unix.Close(slow)
}

// falseProcess accepts cables in a place, and answers with slow files.
func falseProcess(t *testing.T, place hostdir.Place, claim func(*hostdir.Dir) (int, error)) *hostdir.Dir {
	dir, err := hostdir.Open(place, true)
	require.NoError(t, err)
	number, err := claim(dir)
	require.NoError(t, err)
	l, err := dir.Listen(number)
	require.NoError(t, err)
	stop := answerSlowly(t, l)
	t.Cleanup(func() { stop(); dir.Close() })
	return dir
}

// answerSlowly sends a slow file on each of the first connections of a listener, and drops its own
// descriptor. The connections stay.
func answerSlowly(t *testing.T, l *unixsock.Listener) (stop func()) {
	slow := make(chan int, 6)
	for range cap(slow) {
		slow <- hostile.Lingerer(t)
	}
	var conns []*unixsock.Conn
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.AcceptConn()
			if err != nil {
				return
			}
			conns = append(conns, c)
			select {
			case fd := <-slow:
				_, _ = c.WriteFiles([]byte{'x'}, fd)
				go unix.Close(fd) // the last one if the kernel has refused it
			default:
			}
		}
	}()
	return func() {
		l.Close()
		<-ended
		for _, c := range conns {
			c.Close()
		}
		for range len(slow) {
			go unix.Close(<-slow)
		}
	}
}

// attack sends slow files to all other processes of a place, before they are greeted.
func attack(t *testing.T, dir *hostdir.Dir, own int) {
	all, err := dir.Processes()
	require.NoError(t, err)
	for _, process := range all {
		if process == own {
			continue
		}
		c, err := dir.Connect(t.Context(), process, nil)
		require.NoError(t, err)
		sendSlow(t, c)
		c.Close()
	}
}

// proxied expects that bytes go through a proxy and back.
func proxied(t *testing.T, dial func(ctx context.Context) (net.Conn, error)) {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	c, err := dial(ctx)
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(testTimeout)))
	_, err = c.Write([]byte("hello\n"))
	require.NoError(t, err)
	line, err := bufio.NewReader(c).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "hello\n", line)
}

// echoes returns the address of a TCP server that sends back what it gets.
func echoes(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); _, _ = io.Copy(c, c) }()
		}
	}()
	return l.Addr().String()
}

var proxyListens = regexp.MustCompile(`msg=listening `)

// membersDoNotWait attacks a proxy, and those who ask who is there.
func membersDoNotWait(t *testing.T, programs string) {
	named := "shm:" + fabrictest.Name(t)
	s, err := spec.Parse(named)
	require.NoError(t, err)
	proxy := start(t, filepath.Join(programs, "sdp-proxy"), []string{"--map", "sdp://localhost:7=tcp://" + echoes(t)}, withEnv("SDP_FABRIC="+named))
	proxy.waitFor(proxyListens, 1)
	own := 0
	dir := falseProcess(t, s.Place(), func(d *hostdir.Dir) (n int, err error) { own, err = d.ClaimProcess(); return own, err })
	attack(t, dir, own)
	f, err := sdp.Open(named)
	require.NoError(t, err)
	defer f.Close()
	proxied(t, func(ctx context.Context) (net.Conn, error) {
		return (&sdp.Dialer{Fabric: f}).DialContext(ctx, "sdp", "localhost:7")
	})
	for _, asks := range [][]string{{"ls"}, {"doctor"}} {
		p := start(t, filepath.Join(programs, "ntbnet"), asks, withEnv("SDP_FABRIC="+named))
		_ = p.status() // it ends; what it finds is another matter
	}
	attack(t, dir, own)
	proxy.signal(syscall.SIGTERM)
	require.Zero(t, proxy.status())
}

// openDoesNotWait opens a member of a node whose links a false process owns.
func openDoesNotWait(t *testing.T, programs string) {
	name := "ring:" + fabrictest.Name(t) + "?node=1"
	s, err := spec.Parse(name)
	require.NoError(t, err)
	falseProcess(t, s.Place(), (*hostdir.Dir).ClaimOwner)
	proxy := start(t, filepath.Join(programs, "sdp-proxy"), []string{"--map", "sdp://localhost:7=tcp://127.0.0.1:1"}, withEnv("SDP_FABRIC="+name))
	proxy.waitFor(proxyListens, 1)
	proxy.signal(syscall.SIGTERM)
	require.Zero(t, proxy.status())
}

// proxyDoesNotWait attacks a proxy from its client's and its target's side.
func proxyDoesNotWait(t *testing.T, programs string) {
	dir := shortDir(t)
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	l, err := unixsock.ListenAs(t.Context(), to, unixsock.Rights{UID: -1, GID: -1})
	require.NoError(t, err)
	defer answerSlowly(t, l)()
	proxy := start(t, filepath.Join(programs, "sdp-proxy"), []string{"--drain-timeout", "10ms", "--map", "unix://" + from + "=tcp://" + echoes(t), "--map", "tcp://127.0.0.1:0=unix://" + to}, withEnv(fabric(t)))
	proxy.waitFor(proxyListens, 2)
	for range 3 {
		c, err := unixsock.Dial(t.Context(), from)
		require.NoError(t, err)
		sendSlow(t, c)
		defer c.Close()
	}
	address := regexp.MustCompile(`msg=listening map=tcp://(\S+) `).FindStringSubmatch(proxy.out.String() + " ")
	require.NotNil(t, address, proxy.out.String())
	if c, err := net.Dial("tcp", address[1]); err == nil { // the proxy may have reset it already
		defer c.Close()
	}
	proxied(t, func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "unix", from) })
	proxy.signal(syscall.SIGTERM)
	_ = proxy.status() // it may have cut connections
}

// ivshmemServerDoesNotWait attacks a server by its clients.
func ivshmemServerDoesNotWait(t *testing.T, programs string) {
	path := filepath.Join(shortDir(t), "s")
	server := start(t, filepath.Join(programs, "ntb-ivshmem-server"), []string{"--size", "1M", path})
	server.waitFor(regexp.MustCompile("for 2 ends"), 1)
	attacks := func() {
		c, err := unixsock.DialForFiles(t.Context(), path)
		require.NoError(t, err)
		sendSlow(t, c)
		c.Close()
	}
	for i := range 3 {
		attacks()
		server.waitFor(regexp.MustCompile("has gone"), i+1)
	}
	server.signal(syscall.SIGTERM)
	require.Zero(t, server.status())
}
