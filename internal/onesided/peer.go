package onesided

import (
	"sync/atomic"

	"github.com/ntbnet/ntbnet/internal/activemsg"
	"github.com/ntbnet/ntbnet/internal/symheap"
)

// Peer is a PE as seen from this one. This PE itself is always mapped.
type Peer struct {
	// Immutable once all PEs have joined.
	space *Space
	pe    int
	arm   *uint32 // its arm word, where its heap is mapped; with win the copy that it keeps here
	fence bool    // a full barrier is needed between a store there and the load of arm, since one of both PEs has no membarrier
	ch    *activemsg.Channel
	win   *Window // parts of its heap, where puts are stores to a window; else nil

	// base is its heap as mapped here. If it is nil, operations are requests. It
	// becomes nil when the PE ends, after which nothing more is stored there. The
	// mapping stays until its owner ends it.
	base atomic.Pointer[byte]

	// rung is the value of the arm word that was answered last.
	rung atomic.Uint32
	dead atomic.Bool // it has failed or left
	left atomic.Bool // it has called Close, as this PE has
}

// Reach makes operations on the PE loads and stores.
func (p *Peer) Reach(m *symheap.Memory) {
	p.arm = symheap.Word4(&m.Bytes[0], symheap.ArmAt)
	p.base.Store(&m.Bytes[0])
}

// SetFence says that the PE has no membarrier.
func (p *Peer) SetFence() { p.fence = true }

// Fenced reports whether a PE that stores to the PE's heap makes a barrier.
func (p *Peer) Fenced() bool { return p.fence }

// SetChannel sets the channel for requests. The caller excludes other calls for the PE.
func (p *Peer) SetChannel(ch *activemsg.Channel) { p.ch = ch }

// Channel returns the channel for requests. This PE has none for itself.
func (p *Peer) Channel() *activemsg.Channel { return p.ch }

// PE returns the PE's number in the job.
func (p *Peer) PE() int { return p.pe }

// Mapped reports whether the PE's heap is mapped here.
func (p *Peer) Mapped() bool { return p.base.Load() != nil }

// Base returns the PE's heap as mapped here, or nil.
func (p *Peer) Base() *byte { return p.base.Load() }

// Lost says that the PE has ended. Nothing is stored to its heap any more.
func (p *Peer) Lost() {
	p.dead.Store(true)
	p.base.Store(nil)
}

// Dead reports whether the PE has ended.
func (p *Peer) Dead() bool { return p.dead.Load() }

// SetLeft says that the PE has ended in order. That is no failure of what it was sent.
func (p *Peer) SetLeft() { p.left.Store(true) }

// Left reports whether the PE has ended in order.
func (p *Peer) Left() bool { return p.left.Load() }

// armed reports, after a store to the peer's heap, whether a waiter there sleeps or
// is about to. It pairs with Space.park: the sleeper changes its arm word, makes
// all processors pass a barrier, and polls again. So either this PE sees the
// change, or the sleeper sees the store (pair S8).
func (p *Peer) armed() bool {
	return atomic.LoadUint32(p.arm) != p.rung.Load()
}

// Stored follows every store to the peer's heap by way of its mapping (pair S8).
func (p *Peer) Stored() {
	if p.fence || p.armed() {
		p.look()
	}
}

// look is the less common part of Stored (pair S8).
func (p *Peer) look() {
	if p.fence {
		fullFence()
	}
	if p.armed() {
		p.wake()
	}
}

// wake wakes the sleepers of the peer, once for each change of its arm word.
func (p *Peer) wake() {
	arm := atomic.LoadUint32(p.arm)
	if p.rung.Swap(arm) == arm {
		return
	}
	switch {
	case p == p.space.self:
		p.space.sleepers.wake()
	case p.ch != nil:
		_ = p.ch.Wake() // a PE that is gone needs no wake
	}
}

// Tell stores a word of 8 bytes at the PE, after all that was put there by stores. It is for
// words of work areas; what was put by requests is before it if the word is sent on the same
// context.
func (c *Ctx) Tell(p *Peer, off uintptr, v uint64) {
	if !p.tell(off, v) {
		c.pFar(p, off, 8, v, 0)
	}
}

// TellWaiter is Tell for a word that the PE waits for before it uses its memory for anything else. Quiet
// need not wait for that as well.
func (c *Ctx) TellWaiter(p *Peer, off uintptr, v uint64) {
	if p.tell(off, v) {
		return
	}
	ch := c.channel("p", p)
	switch {
	case ch == nil:
	case p.win == nil:
		c.fail("p", p, ch.Tell(off, v))
	case !p.storeWord(off, 8, v, 0, true):
		c.pFar(p, off, 8, v, 0) // which is acknowledged, or a later word could overtake it
	}
}

// tell is Tell for a PE that is mapped. It reports whether the PE is.
func (p *Peer) tell(off uintptr, v uint64) bool {
	base := p.base.Load()
	if base == nil {
		return false
	}
	symheap.StoreFence()
	symheap.Store8(base, off, v)
	p.Stored()
	return true
}
