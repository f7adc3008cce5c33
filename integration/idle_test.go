//go:build linux

package integration

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// privateMemory returns how many bytes of private memory a process has: heap and
// stacks, but no mapped files and no shared memory.
func privateMemory(t *testing.T, p *process) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kib, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")))
			require.NoError(t, err)
			return kib << 10
		}
	}
	t.Fatal("the kernel does not tell RssAnon")
	return 0
}

// idleConnections returns how many connections a test may hold, if each takes a
// number of descriptors in one process. It is at most 5 000, or 1 000 with -short.
func idleConnections(t *testing.T, descriptors int) int {
	t.Helper()
	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	n := int(long(5000, 1000))
	n = min(n, int(min(limit.Cur, 1<<20)-200)/descriptors)
	require.Greater(t, n, 100, "%d descriptors are too few", limit.Cur)
	return n
}

// smallEcho starts an echo server whose connections take one descriptor each, and
// returns its address. io.Copy would take three.
func smallEcho(t *testing.T) (target string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.CopyBuffer(struct{ io.Writer }{c}, struct{ io.Reader }{c}, make([]byte, 4<<10))
			}()
		}
	}()
	return "tcp://" + ln.Addr().String()
}

// A connection that has moved data and waits for more takes little memory, whatever the
// networks of the two sides. It keeps no buffer of the size of the largest read.
func TestIdleConnectionsKeepNoBuffers(t *testing.T) {
	const most = 32 << 10 // bytes for each connection: two goroutines, two endpoints
	socket := "unix://" + filepath.Join(shortDir(t), "s")
	for _, c := range []struct {
		name        string
		descriptors int // of a connection in one process: two sockets, and four ends of pipes
		maps        []string
	}{
		{"TCP and SDP", 2, []string{"sdp://localhost:0=", "tcp://127.0.0.1:0="}},
		{"TCP and Unix sockets", 6, []string{socket + "=", "tcp://127.0.0.1:0="}},
		{"Unix sockets alone", 6, []string{socket + "1=", socket + "2=", "tcp://127.0.0.1:0="}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := idleConnections(t, c.descriptors)
			name := fabric(t)
			var chain []*proxy
			target := smallEcho(t)
			for _, m := range c.maps {
				chain = append(chain, startProxy(t, name, []string{"--max-connections", "0"}, m+target))
				target = chain[len(chain)-1].listening[0]
			}
			front := chain[len(chain)-1]
			mustEcho(t, front.dial(0), "so that all is there that the first connection makes")
			var before []int
			for _, p := range chain {
				before = append(before, privateMemory(t, p.process))
			}
			var all []net.Conn
			for range n {
				all = append(all, front.dial(0))
			}
			// This is the most that a read returns. So a buffer that is kept is touched in
			// full.
			much := strings.Repeat("x", 64<<10)
			for _, c := range all {
				c.SetDeadline(time.Now().Add(testTimeout))
				mustEcho(t, c, much)
			}
			for i, p := range chain {
				each := (privateMemory(t, p.process) - before[i]) / n
				t.Logf("%s: %d bytes for each of %d idle connections", c.maps[i], each, n)
				if each > most {
					t.Errorf("%s: %d bytes for each, want at most %d", c.maps[i], each, most)
				}
			}
			for _, c := range all {
				c.Close()
			}
		})
	}
}
