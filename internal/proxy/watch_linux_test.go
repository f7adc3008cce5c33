package proxy

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Connections between two kernel sockets hold no pipes while they are idle, though the kernel has moved their bytes.
func TestIdleConnectionsHoldNoPipes(t *testing.T) {
	const conns, size = 30, 1 << 20
	e := newEnv(t)
	ln, at := e.serverOn(networkTCP)
	f := e.forward(networkTCP, at, Map{})
	before := pipes(t) // package net keeps some of other tests, for a while
	for range conns {
		client := e.dial(f.Addr())
		server := accept(t, ln)
		go client.Write(make([]byte, size))
		_, err := io.CopyN(io.Discard, server, size)
		require.NoError(t, err)
		_, err = server.Write([]byte("x"))
		require.NoError(t, err)
		_, err = io.ReadFull(client, make([]byte, 1))
		require.NoError(t, err)
	}
	eventually(t, "package net, which keeps a few pipes, has closed those that it dropped", func() bool {
		runtime.GC()
		return pipes(t)-before < conns
	})
}

// pipes returns how many descriptors of pipes this process has.
func pipes(t *testing.T) (n int) {
	fds, err := filepath.Glob("/proc/self/fd/*")
	require.NoError(t, err)
	for _, fd := range fds {
		if to, _ := os.Readlink(fd); strings.HasPrefix(to, "pipe:") {
			n++
		}
	}
	return n
}

// A client that resets while the target takes nothing is noticed: nothing is read from the client then.
func TestAResetIsNoticedWhileTheTargetTakesNothing(t *testing.T) {
	for _, c := range [][2]string{
		{networkTCP, networkTCP}, {networkTCP, networkUnix}, {networkTCP, networkSDP},
		{networkSDP, networkTCP}, {networkSDP, networkSDP}, // and so to the others, which have the same way
	} {
		t.Run(c[0]+" to "+c[1], func(t *testing.T) {
			e := newEnv(t)
			client, server, f := e.pair(c[0], c[1])
			if _, err := server.Write([]byte("x")); err != nil { // both directions have been used
				t.Fatal(err)
			}
			if _, err := io.ReadFull(client, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			chunk := make([]byte, 256<<10)
			for full := 0; full < 5; { // on the way: of a slow proxy one Write may have no byte taken
				client.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
				n, err := client.Write(chunk)
				if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Fatal(err)
				}
				if full++; n > 0 {
					full = 0
				}
			}
			if err := closeWrite(client); err != nil {
				t.Fatal(err)
			}
			reset(client)
			eventually(t, "the connection ends", func() bool { return f.Stats().Open == 0 })
			if got := f.Stats(); got.Aborted != 1 {
				t.Errorf("counters %v, want 1 aborted", got)
			}
		})
	}
}
