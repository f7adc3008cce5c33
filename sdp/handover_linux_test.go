package sdp

import (
	"net"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/fabric"
	"github.com/stretchr/testify/require"
)

// handed is a listener that one process of a node hands over to another one.
type handed struct {
	t    *testing.T
	dial *Fabric // dials
	name string  // of the node
	port string
}

// again hands the port of ln over, has a dial wait, and returns the listener of the next process.
func (h *handed) again(ln net.Listener, next *Fabric) net.Listener {
	h.t.Helper()
	begun := time.Now()
	ln.(*Listener).Handover()
	_, err := ln.Accept()
	require.ErrorIs(h.t, err, net.ErrClosed)
	done := make(chan error, 1)
	go func() {
		c, err := h.dial.Dial("sdp", h.name+":"+h.port)
		if err == nil {
			err = c.Close()
		}
		done <- err
	}()
	time.Sleep(20 * time.Millisecond) // mostly the dial waits by now
	to, err := next.Listen("sdp", ":"+h.port)
	require.NoError(h.t, err)
	require.NoError(h.t, ln.Close())
	if err := <-done; err != nil {
		require.GreaterOrEqual(h.t, time.Since(begun), fabric.HandoverTime, "%v", err)
		return to
	}
	c, err := to.Accept()
	require.NoError(h.t, err)
	require.NoError(h.t, c.Close())
	return to
}

// Dials of the same node and of another one wait for the process that takes a port over.
func TestDialsWaitForAPortThatIsHandedOver(t *testing.T) {
	node(t, "line", "shm", 1, 2)
	far := node(t, "line", "shm", 2, 2)
	a, b, near := member(t, "line", "shm", 1, 1), member(t, "line", "shm", 1, 2), member(t, "line", "shm", 1, 3)
	for _, dials := range []*Fabric{near, far} {
		ln, err := a.Listen("sdp", ":0")
		require.NoError(t, err)
		_, port, err := net.SplitHostPort(ln.Addr().String())
		require.NoError(t, err)
		h := &handed{t, dials, "node1", port}
		c, err := dials.Dial("sdp", "node1:"+port) // there is a way
		require.NoError(t, err)
		waits, err := ln.Accept()
		require.NoError(t, err)
		for range 5 {
			ln = h.again(ln, b)
			ln = h.again(ln, a)
		}
		require.NoError(t, ln.Close())
		require.NoError(t, waits.Close())
		require.NoError(t, c.Close())
	}
}

// A connection that has come before a port is handed over is accepted.
func TestConnectionsThatWaitAreAcceptedAfterAHandover(t *testing.T) {
	a, b := member(t, "line", "shm", 1, 1), member(t, "line", "shm", 1, 2)
	ln, err := a.Listen("sdp", ":0")
	require.NoError(t, err)
	c, err := b.Dial("sdp", ln.Addr().String())
	require.NoError(t, err)
	ln.(*Listener).Handover()
	ln.(*Listener).Handover()
	got, err := ln.Accept()
	require.NoError(t, err)
	_, err = ln.Accept()
	require.ErrorIs(t, err, net.ErrClosed)
	next, err := b.Listen("sdp", ln.Addr().String())
	require.NoError(t, err)
	require.NoError(t, ln.Close())
	_, err = a.Listen("sdp", ln.Addr().String())
	require.Error(t, err, "Close leaves the port to the next process")
	for _, c := range []interface{ Close() error }{next, got, c} {
		require.NoError(t, c.Close())
	}
}
