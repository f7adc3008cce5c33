package shmem

import (
	"sync/atomic"
)

// peer is a PE as seen from this one. This PE itself is always mapped.
type peer struct {
	// Immutable once the World is open.
	w     *World
	pe    int
	node  int     // the PE's node in the fabric, 0 if there is one host
	arm   *uint32 // its arm word, where its heap is mapped
	fence bool    // a full barrier is needed between a store there and the load of arm, since one of both PEs has no membarrier
	mem   *memory // the mapping, if it is not this PE's own heap
	ch    *channel
	why   error // why its heap is not mapped here; nil if it is

	// base is its heap as mapped here. If it is nil, operations are requests. It
	// becomes nil when the PE ends, after which nothing more is stored there. The
	// mapping stays until Close.
	base atomic.Pointer[byte]

	// rung is the value of the arm word that was answered last.
	rung atomic.Uint32
	dead atomic.Bool // it has failed or left
}

// armed reports, after a store to the peer's heap, whether a waiter there sleeps or
// is about to. It pairs with World.park: the sleeper changes its arm word, makes
// all processors pass a barrier, and polls again. So either this PE sees the
// change, or the sleeper sees the store (pair S8).
func (p *peer) armed() bool {
	return atomic.LoadUint32(p.arm) != p.rung.Load()
}

// stored follows every store to the peer's heap by way of its mapping (pair S8).
func (p *peer) stored() {
	if p.fence || p.armed() {
		p.look()
	}
}

// look is the less common part of stored (pair S8).
func (p *peer) look() {
	if p.fence {
		fullFence()
	}
	if p.armed() {
		p.wake()
	}
}

// wake wakes the sleepers of the peer, once for each change of its arm word.
func (p *peer) wake() {
	arm := atomic.LoadUint32(p.arm)
	if p.rung.Swap(arm) == arm {
		return
	}
	switch {
	case p.pe == p.w.pe:
		p.w.sleepers.wake()
	case p.ch != nil:
		_ = p.ch.tell(opWake, 0) // a PE that is gone needs no wake
	}
}
