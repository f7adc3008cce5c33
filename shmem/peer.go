package shmem

import (
	"sync/atomic"
)

// peer is a PE as seen from here. One that is this PE itself is mapped always.
type peer struct {
	// Immutable once the World is open.
	w     *World
	pe    int
	node  int     // of the fabric that its host is, 0 if there is one host
	arm   *uint32 // its arm word, where its heap is mapped
	fence bool    // a full barrier is needed between a store there and the look at arm: one of both has no membarrier
	mem   *memory // the mapping, if it is not this PE's own heap
	ch    *channel
	why   error // why its heap is not mapped here

	// base is its heap as mapped here; nil: operations are requests. Set to nil
	// when the PE ends, after which nothing is stored there any more, but the
	// mapping stays until Close.
	base atomic.Pointer[byte]

	// rung is the arm word that was answered last.
	rung atomic.Uint32
	dead atomic.Bool // it failed or has left
}

// armed tells, after a store to the peer's heap, if someone there is about to
// sleep, or does. It pairs with World.park: the sleeper changes its arm word, makes
// all processors pass a barrier, and looks again. So either the change is seen
// here, or the store there (pair S8).
func (p *peer) armed() bool {
	return atomic.LoadUint32(p.arm) != p.rung.Load()
}

// stored follows every store to the peer's heap by way of its mapping (pair S8).
func (p *peer) stored() {
	if p.fence || p.armed() {
		p.look()
	}
}

// look is the rarer part of stored (pair S8).
func (p *peer) look() {
	if p.fence {
		fullFence()
	}
	if p.armed() {
		p.wake()
	}
}

// wake wakes who sleeps at the peer, once for each change of its arm word.
func (p *peer) wake() {
	arm := atomic.LoadUint32(p.arm)
	if p.rung.Swap(arm) == arm {
		return
	}
	switch {
	case p.pe == p.w.pe:
		p.w.sleepers.wake()
	case p.ch != nil:
		_ = p.ch.tell(opWake, 0) // a PE that is gone needs none
	}
}
