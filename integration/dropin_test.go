//go:build linux

package integration

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// playDrop dials the address in its first argument as often as the second says. It writes a
// word on each connection, and drops the connection.
func playDrop(p *self) error {
	n, err := strconv.Atoi(p.args[1])
	if err != nil {
		return err
	}
	for range n {
		c, err := sdp.Dial("sdp", p.args[0])
		if err != nil {
			return err
		}
		if _, err := io.WriteString(c, "word"); err != nil {
			return err
		}
	}
	done := make(chan struct{})
	go func() { p.stay(); close(done) }()
	for {
		runtime.GC()
		select {
		case <-done:
			return nil
		case <-time.After(time.Millisecond):
		}
	}
}

// Connections that a process has dropped without Close end at the other process, while
// both live.
func TestDroppedConnectionsEndAtTheOtherProcess(t *testing.T) {
	newFabric(t)
	ln := listenSDP(t)
	const n = 1000
	p := startPeer(t, "drop", []string{ln.Addr().String(), fmt.Sprint(n)})
	ends := make(chan error, n)
	for range n {
		c, err := ln.Accept()
		require.NoError(t, err)
		go func() {
			defer c.Close()
			c.SetDeadline(time.Now().Add(testTimeout))
			got, err := io.ReadAll(c)
			if err == nil && string(got) != "word" {
				err = fmt.Errorf("read %q", got)
			}
			ends <- err
		}()
	}
	for range n {
		require.NoError(t, <-ends)
	}
	p.end()
}

// playIdle accepts connections at an address that it reports, keeps them, and ends them
// when asked to.
func playIdle(p *self) error {
	ln, err := sdp.Listen("sdp", "localhost:0")
	if err != nil {
		return err
	}
	defer ln.Close()
	p.printf("%v", ln.Addr())
	var last *sdp.Conn
	for {
		what, ok := p.readLine()
		if !ok {
			return nil
		}
		switch what {
		case "accept":
			var c net.Conn
			if c, err = ln.Accept(); err == nil {
				last = c.(*sdp.Conn)
				defer last.Close()
			}
		case "write":
			_, err = io.WriteString(last, "unexpected")
		case "close":
			err = last.Close()
		case "close write":
			err = last.CloseWrite()
		case "abort":
			last.SetLinger(0)
			err = last.Close()
		}
		if err != nil {
			return err
		}
		p.printf("done")
	}
}

// idleError returns what a connection pool finds out about an idle connection. It is the
// check of the MySQL driver. That of go-redis is similar.
func idleError(c net.Conn) error {
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return err
	}
	var found error
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		n, err := syscall.Read(int(fd), b[:])
		switch {
		case n == 0 && err == nil:
			found = io.EOF
		case n > 0:
			found = io.ErrNoProgress
		case err == syscall.EAGAIN:
		default:
			found = err
		}
		return true
	})
	if err != nil {
		return err
	}
	return found
}

// A pool finds out that a connection is stale before it uses it. It does so at once after
// the server has closed the connection, without a Read, and by poll too.
func TestPoolsFindStaleConnections(t *testing.T) {
	newFabric(t)
	p := startPeer(t, "idle", nil)
	address := p.readLine()
	for _, tc := range []struct {
		how  string
		want error
		poll bool
	}{
		{"nothing", nil, false}, {"write", io.ErrNoProgress, false}, {"close", io.EOF, true},
		{"close write", io.EOF, true}, {"abort", io.EOF, true}, {"kill", io.EOF, true},
	} {
		t.Run(strings.ReplaceAll(tc.how, " ", "-"), func(t *testing.T) {
			c := dialSDP(t, address)
			require.Equal(t, "done", p.ask("accept"))
			require.NoError(t, idleError(c))
			if tc.how == "kill" {
				p.kill()
			} else {
				require.Equal(t, "done", p.ask(tc.how))
			}
			if tc.poll {
				pollsAsReadable(t, c)
			}
			if tc.want == nil {
				require.NoError(t, idleError(c))
			} else {
				require.ErrorIs(t, idleError(c), tc.want)
			}
		})
	}
}

// pollsAsReadable waits with poll for the descriptor alone to become readable.
func pollsAsReadable(t *testing.T, c syscall.Conn) {
	t.Helper()
	raw, err := c.SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(fd uintptr) {
		for {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(testTimeout.Milliseconds()))
			if err == unix.EINTR {
				continue
			}
			require.NoError(t, err)
			require.Equal(t, 1, n, "it does not poll as readable")
			return
		}
	}))
}
