package shmem

import (
	"errors"
	"net"
	"sync/atomic"
)

// Ctx is a communication context: a set of operations that are ordered and
// completed together. It records its own errors. It numbers PEs as its team does.
//
// A context may be used by several goroutines. The options of the specification,
// serialized and private, would allow an implementation to support less. They
// change nothing here.
type Ctx struct {
	w     *World  // immutable
	team  *Team   // immutable; nil: the team of all
	peers []*peer // by number in the team; immutable
	far   []*peer // the peers that are reached by requests; immutable
	err   atomic.Pointer[OpError]
	// n is the number of PEs that operations may name: len(peers), or 0 after Close. It
	// is accessed by functions of sync/atomic rather than being an atomic type, so that
	// peer is short enough to be inlined.
	n      uintptr
	closed atomic.Bool
}

// NewCtx makes a context of all PEs, like shmem_ctx_create. It is not collective.
func NewCtx(w *World) *Ctx {
	w.check()
	return newCtx(w, nil, w.peers)
}

func newCtx(w *World, t *Team, peers []*peer) *Ctx {
	c := &Ctx{w: w, team: t, peers: peers}
	for _, p := range peers {
		if p.ch != nil && p.base.Load() == nil && !p.dead.Load() {
			c.far = append(c.far, p)
		}
	}
	atomic.StoreUintptr(&c.n, uintptr(len(peers)))
	return c
}

// Team returns the team that numbers the context's PEs, like shmem_ctx_get_team.
func (c *Ctx) Team() *Team {
	if c.team == nil {
		return c.w.team
	}
	return c.team
}

// Close completes the context's operations, as Quiet does, and ends it.
func (c *Ctx) Close() error {
	if c == c.w.ctx {
		panic("shmem: the default context is closed with its World")
	}
	if c.closed.Swap(true) {
		return ErrClosed
	}
	atomic.StoreUintptr(&c.n, 0)
	return c.Quiet()
}

// Err returns the first failure of the context's operations, an *OpError, or nil.
func (c *Ctx) Err() error {
	if e := c.err.Load(); e != nil {
		return e
	}
	return nil
}

// peer returns PE pe of the context, for an operation on an object of World w. w is
// nil for an object without elements.
func (c *Ctx) peer(w *World, pe int) *peer {
	if w != c.w || uintptr(pe) >= atomic.LoadUintptr(&c.n) {
		c.odd(w, pe)
	}
	return c.peers[pe]
}

// odd handles the cases that peer does not. It panics unless the object has no
// elements.
//
//go:noinline
func (c *Ctx) odd(w *World, pe int) {
	switch {
	case c.closed.Load():
		closedCtx()
	case uint(pe) >= uint(len(c.peers)):
		badPE(pe, len(c.peers))
	case w != nil:
		badWorld()
	}
}

func closedCtx() { panic("shmem: use of a closed context") }

// fail records the first failure.
func (c *Ctx) fail(op string, p *peer, err error) {
	if err != nil {
		c.err.CompareAndSwap(nil, c.failure(op, p, err))
	}
}

// failure returns the error of an operation on p.
func (c *Ctx) failure(op string, p *peer, err error) *OpError {
	if dead := c.w.Err(); dead != nil && errors.Is(err, net.ErrClosed) {
		err = dead // we have closed the connection ourselves
	}
	return &OpError{op, p.pe, err}
}

// channel returns the channel to a PE that is not mapped. If the PE is gone, it
// records the failure and returns nil. It panics after Close of the World or the
// context.
func (c *Ctx) channel(op string, p *peer) *channel {
	ch, err := c.reach(p)
	c.fail(op, p, err)
	return ch
}

// reach is channel that returns the failure rather than recording it.
func (c *Ctx) reach(p *peer) (*channel, error) {
	c.w.check()
	if c.closed.Load() {
		closedCtx()
	}
	if !p.dead.Load() && p.ch != nil {
		return p.ch, nil
	}
	if err := c.w.Err(); err != nil {
		return nil, err
	}
	return nil, ErrClosed // the PE has called Close
}

// Fence orders stores: what the context stored to a PE before it is seen there
// before what it stores to the same PE after it, like shmem_fence. Requests keep
// their order without it.
func (c *Ctx) Fence() { storeFence() }

// Quiet waits until all the context's operations are done and can be seen by all PEs,
// like shmem_quiet. What nonblocking operations fetch is then here. If the context has
// failed, it returns the first failure at once. A PE that stores, calls Quiet and then
// reads pairs with another PE that does the same (pair S18).
func (c *Ctx) Quiet() error {
	fullFence()
	if len(c.far) > 0 {
		c.quiet()
	}
	return c.Err()
}

// quiet sends all channels their requests, and then waits for the answers.
func (c *Ctx) quiet() {
	for _, begin := range []bool{true, false} {
		for _, p := range c.far {
			err := p.ch.quiet(begin)
			if err != nil && !c.w.hasLeft(p.pe) {
				c.fail("quiet", p, err)
			}
		}
	}
}
