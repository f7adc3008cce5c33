package shmem

import (
	"context"
	"fmt"
)

// Locks: chapter 9.12 of the specification. A lock is one symmetric word, zero at
// first. It is a queue of PEs, who get it in the order in which they asked: each waits
// at a word of its own heap, so that waiting makes no traffic, and is woken by the one
// before it.
//
// The word has two halves of 4 bytes. The first, at PE 0, is the queue's tail: the
// number of the last PE in it, from 1; 0: nobody has the lock. The second, at each PE,
// is its own place in the queue:
//
//	bit 31     it waits for the one before it
//	bit 30     it is in the queue
//	bits 0-29  the number of the PE behind it, from 1; 0: none yet
//
// To set the lock a PE prepares its place, swaps its number into the tail, and, if
// somebody was there, adds its number to that one's place and waits until that one
// clears its bit 31. To clear it the PE takes its number out of the tail, if it is
// still the last; else it waits until the next one's number is in its place, and clears
// that one's bit.

// Lock is a lock of all PEs. Of one PE, one goroutine at a time may ask for it.
type Lock struct{ halves Sym[uint32] }

const (
	lockHome = 0
	lockTail = 0 // the halves
	lockMine = 1
	lockWait = 1 << 31
	lockIn   = 1 << 30
	lockNext = lockIn - 1
)

// LockAt is the lock in the first element of s, which must be zero at first on all
// PEs and not be used for anything else.
func LockAt(s Sym[uint64]) Lock {
	s.at(0)
	return Lock{Sym[uint32]{s.w, s.off, 2}}
}

// NewLock allocates a lock. It is collective.
func NewLock(w *World) (Lock, error) {
	s, err := AllocZeroed[uint64](w, 1)
	if err != nil {
		return Lock{}, err
	}
	return LockAt(s), nil
}

// Free gives the memory of NewLock back. It is collective.
func (l Lock) Free() error { return Free(Sym[uint64]{l.halves.w, l.halves.off, 1}) }

// Set waits until this PE has the lock, like shmem_set_lock. It fails if a PE ends.
// If ctx ends first, the PE stays in the queue, and must call Set again.
func (l Lock) Set(ctx context.Context) error {
	w, mine := l.place()
	c := w.ctx
	if atomicLoad(mine)&lockIn == 0 {
		AtomicSet(c, l.halves, lockMine, lockWait|lockIn, w.pe)
		before := AtomicSwap(c, l.halves, lockTail, uint32(w.pe+1), lockHome)
		if err := c.Err(); err != nil {
			return err
		}
		if before == 0 {
			AtomicAnd(c, l.halves, lockMine, ^uint32(lockWait), w.pe)
			return nil
		}
		AtomicOr(c, l.halves, lockMine, uint32(w.pe+1), int(before)-1)
	}
	return w.wait(ctx, func() bool { return atomicLoad(mine)&lockWait == 0 })
}

// Test takes the lock if nobody has it, and tells if this PE has it now, like
// shmem_test_lock.
func (l Lock) Test() (bool, error) {
	w, mine := l.place()
	c := w.ctx
	if v := atomicLoad(mine); v&lockIn != 0 { // a Set was given up
		return v&lockWait == 0, nil
	}
	AtomicSet(c, l.halves, lockMine, lockIn, w.pe)
	if AtomicCompareSwap(c, l.halves, lockTail, 0, uint32(w.pe+1), lockHome) == 0 && c.Err() == nil {
		return true, nil
	}
	AtomicSet(c, l.halves, lockMine, 0, w.pe)
	return false, c.Err()
}

// Clear completes this PE's operations on the default context, and gives the lock to
// the next, like shmem_clear_lock. It panics if this PE does not have it.
func (l Lock) Clear(ctx context.Context) error {
	w, mine := l.place()
	c := w.ctx
	if atomicLoad(mine)&(lockIn|lockWait) != lockIn {
		panic(fmt.Sprintf("shmem: PE %d clears a lock that it does not have", w.pe))
	}
	if err := c.Quiet(); err != nil {
		return err
	}
	if atomicLoad(mine)&lockNext == 0 &&
		AtomicCompareSwap(c, l.halves, lockTail, uint32(w.pe+1), 0, lockHome) == uint32(w.pe+1) {
		AtomicSet(c, l.halves, lockMine, 0, w.pe)
		return c.Err()
	}
	// Somebody is behind us, and is about to say so.
	if err := w.wait(ctx, func() bool { return atomicLoad(mine)&lockNext != 0 }); err != nil {
		return err
	}
	next := int(atomicLoad(mine)&lockNext) - 1
	AtomicSet(c, l.halves, lockMine, 0, w.pe)
	AtomicAnd(c, l.halves, lockMine, ^uint32(lockWait), next)
	return c.Err()
}

// place is this PE's own half.
func (l Lock) place() (*World, *uint32) {
	w := l.halves.w
	w.check()
	return w, l.halves.local(lockMine)
}
