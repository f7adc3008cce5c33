package listen

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/bounce"
	"github.com/ntbnet/ntbnet/dial"
	"github.com/ntbnet/ntbnet/internal/hello"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/stretchr/testify/require"
)

// testTimeout is a limit for everything that does not hang.
const testTimeout = 30 * time.Second

// returns fails with all stacks if f does not return.
func returns(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(testTimeout):
		buf := make([]byte, 1<<18)
		t.Fatalf("%s does not return:\n%s", what, buf[:runtime.Stack(buf, true)])
	}
}

// valve is a device whose stores and doorbells block while it is shut.
type valve struct {
	ntb.Device
	inner ntb.Window
	held  chan struct{} // capacity 1; a store or doorbell that blocks sends to it

	mu   sync.Mutex
	open chan struct{} // closed while stores may pass; guarded by mu
}

func newValve(d ntb.Device) *valve {
	v := &valve{Device: d, inner: d.Outbound(), held: make(chan struct{}, 1), open: make(chan struct{})}
	close(v.open)
	return v
}

func (v *valve) shut() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.open = make(chan struct{})
}

// release opens the valve if it is shut.
func (v *valve) release() {
	v.mu.Lock()
	defer v.mu.Unlock()
	select {
	case <-v.open:
	default:
		close(v.open)
	}
}

func (v *valve) pass() {
	v.mu.Lock()
	open := v.open
	v.mu.Unlock()
	select {
	case <-open:
		return
	default:
	}
	select {
	case v.held <- struct{}{}:
	default:
	}
	<-open
}

// Caps leaves out what would let stores pass by another way.
func (v *valve) Caps() ntb.Caps {
	c := v.Device.Caps()
	c.Coherent, c.DMAChannels = false, 0
	return c
}

func (v *valve) Outbound() ntb.Window { return ntb.SinkWindow(ntb.Basic(v), v.inner.Len()) }

func (v *valve) RingDoorbell(bit int) {
	v.pass()
	v.Device.RingDoorbell(bit)
}

// Store implements ntb.Sink.
func (v *valve) Store(off int, p []byte) {
	v.pass()
	v.inner.Write(off, p)
}

// Publish implements ntb.Sink.
func (v *valve) Publish(off int, word uint64, width int) {
	v.pass()
	if width == 4 {
		v.inner.Publish32(off, uint32(word))
		return
	}
	v.inner.Publish64(off, word)
}

// side is the set-up of SDP connections at one end of a link: a link.Service for
// one peer.
type side struct {
	table *Table
	opts  bounce.Options
	pool  *bounce.Pool
	dials *dial.Table
	// before, if set, is called with each message before it is handled.
	before func(msg any)
	skew   atomic.Int32 // added to the version of each message that comes
}

func (s *side) Open(p *link.Peer) link.Handler {
	s.pool = bounce.NewPool(p, s.opts)
	s.dials = dial.NewTable(s.pool)
	return s
}

func (s *side) Message(m []byte) error {
	m = bytes.Clone(m)
	m[1] += uint8(s.skew.Load())
	msg, err := hello.Parse(m)
	if err != nil {
		return err
	}
	if s.before != nil {
		s.before(msg)
	}
	switch msg := msg.(type) {
	case *hello.Hello:
		return s.table.Hello(s.pool, msg)
	case *hello.HelloAck:
		return s.dials.Ack(msg)
	case *hello.Refuse:
		return s.dials.Refuse(msg)
	}
	return nil
}

func (s *side) Down(error) {
	s.dials.Down()
	s.pool.Down()
}

// linked is one peer's link to the node that listens.
type linked struct {
	near, far *side  // ends at the listening node, and at the peer
	valve     *valve // passes what the listening node stores to the peer
}

// newLink joins a peer to a node that has table's listeners. before is that of the
// near side; it also gets the valve.
func newLink(t *testing.T, table *Table, before func(*valve, any)) *linked {
	t.Helper()
	x, y := ntbmem.Pair(1 << 20)
	return join(t, &side{table: table}, x, y, before)
}

// join is newLink with a near side and devices of the caller's.
func join(t *testing.T, s *side, x, y ntb.Device, before func(*valve, any)) *linked {
	t.Helper()
	l := &linked{near: s, far: &side{table: NewTable()}, valve: newValve(x)}
	if before != nil {
		l.near.before = func(msg any) { before(l.valve, msg) }
	}
	near, far := link.NewNode(link.MakeID(1, 1)), link.NewNode(link.MakeID(1, 2))
	near.Register(link.ServiceSDP, l.near)
	far.Register(link.ServiceSDP, l.far)
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	up := make(chan error, 1)
	go func() {
		_, err := far.Up(ctx, y)
		up <- err
	}()
	_, err := near.Up(ctx, l.valve)
	require.NoError(t, err)
	require.NoError(t, <-up)
	t.Cleanup(func() {
		l.valve.release()
		returns(t, "Node.Close", func() { near.Close(); far.Close() })
	})
	return l
}

// dial connects from the peer to a port of the listening node. It waits for a place in
// the backlog.
func (l *linked) dial(ctx context.Context, port uint16) (*bounce.Pair, error) {
	var retry dial.Retry
	for {
		pair, err := l.far.dials.Dial(ctx, time.Now().Add(testTimeout), hello.Hello{Version: hello.Version, From: 40000, To: port})
		if err == nil || ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return pair, err
		}
		next, err := retry.After(err)
		if err != nil {
			return nil, err
		}
		select {
		case <-time.After(next.Pause):
		case <-ctx.Done():
			return nil, retry.Ended(ctx.Err())
		}
	}
}

// mustDial dials while others are held up. It must not be.
func (l *linked) mustDial(t *testing.T, port uint16) (pair *bounce.Pair) {
	t.Helper()
	returns(t, "Dial", func() {
		var err error
		if pair, err = l.dial(context.Background(), port); err != nil {
			t.Error("dial:", err)
		}
	})
	require.NotNil(t, pair)
	return pair
}

// mustAccept accepts while others are held up. It must not be.
func mustAccept(t *testing.T, l *Listener) (a Accepted) {
	t.Helper()
	returns(t, "Accept", func() {
		var err error
		if a, err = l.Accept(); err != nil {
			t.Error("accept:", err)
		}
	})
	require.NotNil(t, a.Pair)
	return a
}

// noPairs waits until the links have no connections left.
func noPairs(t *testing.T, links ...*linked) {
	t.Helper()
	returns(t, "the end of all pairs", func() {
		for _, l := range links {
			for _, p := range []*bounce.Pool{l.near.pool, l.far.pool} {
				for n := 1; n > 0; time.Sleep(time.Millisecond) {
					_, n = p.Stats()
				}
			}
		}
	})
}

func helloTo(port uint16) hello.Hello {
	return hello.Hello{Version: hello.Version, From: 40000, To: port}
}
