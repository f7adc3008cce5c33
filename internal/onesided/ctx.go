package onesided

import (
	"slices"
	"sync/atomic"

	"github.com/ntbnet/ntbnet/internal/activemsg"
	"github.com/ntbnet/ntbnet/internal/symheap"
)

// Ctx is a communication context: a set of operations that are ordered and completed
// together. It records its own errors. Several goroutines may use it.
type Ctx struct {
	space *Space  // immutable
	peers []*Peer // by the numbers that operations use; immutable
	far   []*Peer // the peers that are reached by requests; immutable
	err   atomic.Pointer[error]
	// n is the number of PEs that operations may name: len(peers), or 0 after Close. It
	// is accessed by functions of sync/atomic rather than being an atomic type, so that
	// peer is short enough to be inlined.
	n      uintptr
	closed atomic.Bool
}

// Init makes c a context of some PEs.
func (c *Ctx) Init(s *Space, peers []*Peer) {
	c.space, c.peers = s, peers
	for _, p := range peers {
		if p.ch != nil && p.base.Load() == nil && !p.dead.Load() {
			c.far = append(c.far, p)
		}
	}
	atomic.StoreUintptr(&c.n, uintptr(len(peers)))
}

// Close completes the context's operations, as Quiet does, and ends it.
func (c *Ctx) Close() error {
	if c.closed.Swap(true) {
		return ErrClosed
	}
	atomic.StoreUintptr(&c.n, 0)
	return c.Quiet()
}

// Err returns the first failure of the context's operations, or nil.
func (c *Ctx) Err() error {
	if e := c.err.Load(); e != nil {
		return *e
	}
	return nil
}

// peer returns PE pe of the context, for an operation on an object of Space s. s is nil for
// an object without elements.
func (c *Ctx) peer(s *Space, pe int) *Peer {
	if s != c.space || uintptr(pe) >= atomic.LoadUintptr(&c.n) {
		c.odd(s, pe)
	}
	return c.peers[pe]
}

// Check panics if an operation on PE pe would, for an object of Space s.
func (c *Ctx) Check(s *Space, pe int) { c.peer(s, pe) }

// odd handles the cases that peer does not. It panics unless the object has no elements.
//
//go:noinline
func (c *Ctx) odd(s *Space, pe int) {
	switch {
	case c.closed.Load():
		closedCtx()
	case uint(pe) >= uint(len(c.peers)):
		BadPE(pe, len(c.peers))
	case s != nil:
		BadWorld()
	}
}

func closedCtx() { panic("shmem: use of a closed context") }

// fail records the first failure.
func (c *Ctx) fail(op string, p *Peer, err error) {
	if err != nil {
		first := c.space.opError(op, p.pe, err)
		c.err.CompareAndSwap(nil, &first)
	}
}

// channel returns the channel to a PE that is not mapped. If the PE is gone, it records the
// failure and returns nil. It panics after Close of the space or the context.
func (c *Ctx) channel(op string, p *Peer) *activemsg.Channel {
	ch, err := c.reach(p)
	c.fail(op, p, err)
	return ch
}

// reach is channel that returns the failure rather than recording it.
func (c *Ctx) reach(p *Peer) (*activemsg.Channel, error) {
	c.space.Check()
	if c.closed.Load() {
		closedCtx()
	}
	if !p.dead.Load() && p.ch != nil {
		return p.ch, nil
	}
	if err := c.space.Err(); err != nil {
		return nil, err
	}
	return nil, ErrClosed // the PE has called Close
}

// Fence orders stores: what the context stored to a PE before it is seen there before what
// it stores to the same PE after it. Requests keep their order without it.
func (c *Ctx) Fence() { symheap.StoreFence() }

// Quiet waits until all the context's operations are done and can be seen by all PEs. What
// nonblocking operations fetch is then here. If the context has failed, it returns the
// first failure at once. A PE that stores, calls Quiet and then reads pairs with another PE
// that does the same (pair S18).
func (c *Ctx) Quiet() error {
	fullFence()
	if len(c.far) > 0 {
		c.quiet(c.far)
	}
	return c.Err()
}

// QuietPEs is Quiet for the operations on some PEs (pair S18). Like Quiet it returns a failure of any of the context's operations.
func (c *Ctx) QuietPEs(pes []int) error {
	fullFence()
	var far []*Peer
	for _, pe := range pes {
		if p := c.peer(c.space, pe); slices.Contains(c.far, p) {
			far = append(far, p)
		}
	}
	c.quiet(far)
	return c.Err()
}

// quiet asks the channels of PEs for an acknowledgement, and then waits for the answers.
func (c *Ctx) quiet(far []*Peer) {
	for _, wait := range []func(*activemsg.Channel) error{(*activemsg.Channel).Ack, (*activemsg.Channel).Quiet} {
		for _, p := range far {
			err := wait(p.ch)
			if err != nil && !p.left.Load() {
				c.fail("quiet", p, err)
			}
		}
	}
}
