//go:build linux

package integration

import (
	"context"
	"io"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/require"
)

// within fails the test if f does not return. It asserts no time: the limit only
// catches a call that hangs.
func within(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(testTimeout):
		t.Fatalf("%s does not return", what)
	}
}

// A node two hops away is stopped while six connections write to it and ten are idle.
// Each call that has a deadline ends by it, other connections go on, and Close and
// Fabric.Close return.
func TestCallsEndWhileANodeSeveralHopsAwayIsStopped(t *testing.T) {
	leak.Check(t)
	r := newRing(t, "line", 3)
	r.begin(2)
	r.begin(3)
	r.ready(2, 3)
	f, err := sdp.Open(r.spec(1))
	require.NoError(t, err)
	dial := func(address string) *sdp.Conn {
		c, err := dialNode(f, address)
		require.NoError(t, err)
		require.NoError(t, c.SetDeadline(time.Time{}))
		return c
	}
	const writers, idle = 6, 10
	var writing, idling []*sdp.Conn
	for range writers {
		c := dial("node3:7")
		require.NoError(t, there(c, "8388608")) // so that its queue has grown
		writing = append(writing, c)
	}
	for range idle {
		idling = append(idling, dial("node3:7"))
	}
	beside := dial("node2:7")
	require.NoError(t, r.nodes[3].cmd.Process.Signal(syscall.SIGSTOP))
	until(t, "node 3 is stopped", r.nodes[3].stopped)

	within(t, "Write with a deadline", func() {
		var all sync.WaitGroup
		for _, c := range writing {
			require.NoError(t, c.SetWriteDeadline(time.Now().Add(time.Second)))
			all.Go(func() {
				_, err := c.Write(make([]byte, 64<<20))
				require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			})
		}
		all.Wait()
	})
	within(t, "DialContext with a limit", func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := f.DialContext(ctx, "sdp", "node3:7")
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
	within(t, "Read with a deadline", func() {
		require.NoError(t, idling[0].SetReadDeadline(time.Now().Add(time.Second)))
		_, err := idling[0].Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	})
	within(t, "Stats", func() { f.Stats() })
	within(t, "a connection to another node", func() {
		_, err := beside.Write([]byte("x"))
		require.NoError(t, err)
		_, err = io.ReadFull(beside, make([]byte, 1))
		require.NoError(t, err)
	})
	within(t, "a dial of another node", func() { dial("node2:7").Close() })
	within(t, "Listen", func() {
		ln, err := f.Listen("sdp", ":0")
		require.NoError(t, err)
		require.NoError(t, ln.Close())
	})
	within(t, "Close of a connection that has written", func() { writing[0].Close() })
	within(t, "CloseWrite", func() { require.NoError(t, writing[1].CloseWrite()) })
	within(t, "Close of ten idle connections, one by one", func() {
		for _, c := range idling[:idle/2] {
			require.NoError(t, c.Close())
		}
	})
	within(t, "Fabric.Close", func() { require.NoError(t, f.Close()) })
	require.NoError(t, r.nodes[3].cmd.Process.Signal(syscall.SIGCONT))
	r.end()
}
