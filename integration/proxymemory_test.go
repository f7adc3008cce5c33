//go:build linux

package integration

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/require"
)

// in starts a command in the group.
func (g *memoryGroup) in(c *exec.Cmd) {
	c.Args = append([]string{"sh", "-c", `echo $$ > "$0" && exec "$@"`, filepath.Join(g.dir, "cgroup.procs"), c.Path}, c.Args[1:]...)
	c.Path = "/bin/sh"
}

// A proxy in a cgroup of 48 MiB, with the max-connections that check computes for it, is not killed when all targets stop
// reading. A client beyond is reset, and all that the others wrote arrives.
func TestProxyKeepsToItsMemory(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector takes more")
	}
	fabric := "shm:" + fabrictest.Name(t)
	t.Setenv("SDP_FABRIC", fabric)
	g := newMemoryGroup(t, 48<<20)
	ln, err := sdp.Listen("sdp", "localhost:0")
	require.NoError(t, err)
	t.Cleanup(func() { ln.Close() })
	target := "sdp://" + ln.Addr().String()

	file := filepath.Join(t.TempDir(), "proxy.yaml")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, "maps: [{listen: 'tcp://127.0.0.1:0', target: '%s'}]\n", target), 0o600))
	out, err := exec.Command(filepath.Join(programs, "sdp-proxy"), "check", "--memory", "48M", file).Output()
	require.NoError(t, err)
	most := 0
	_, err = fmt.Sscanf(string(out), file+": 1 maps\nmax-connections: %d\n", &most)
	require.NoError(t, err, "%s", out)
	require.Greater(t, most, 1)

	p := startProxyIn(t, "SDP_FABRIC="+fabric, []option{g.in}, []string{fmt.Sprint("--max-connections=", most)}, "tcp://127.0.0.1:0="+target)
	at := strings.TrimPrefix(p.listening[0], "tcp://")
	const each = 8 << 20
	var clients, servers sync.WaitGroup
	full := make(chan struct{}) // closed when servers read
	read := make(chan int64, most)
	for range most {
		c, err := net.Dial("tcp", at)
		require.NoError(t, err)
		clients.Go(func() {
			defer c.Close()
			c.Write(make([]byte, each)) // of which the server reads all
		})
		s, err := ln.Accept()
		require.NoError(t, err)
		servers.Go(func() {
			defer s.Close()
			<-full
			n, _ := io.Copy(io.Discard, s)
			read <- n
		})
	}
	until(t, "all buffers are full", func() bool { return p.over() || g.shared() >= most*1000 })
	t.Logf("%d connections have %d KiB of buffers", most, g.shared())
	c, err := net.Dial("tcp", at)
	if err == nil { // else it was reset before the dial returned
		_, err = c.Read(make([]byte, 1))
		c.Close()
	}
	require.ErrorIs(t, err, syscall.ECONNRESET)

	close(full)
	clients.Wait()
	servers.Wait()
	close(read)
	for n := range read {
		require.EqualValues(t, each, n)
	}
	require.Zero(t, g.oomKills())
	require.EqualValues(t, 1, p.stop().refused)
}
