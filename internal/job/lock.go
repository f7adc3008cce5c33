package job

import (
	"context"
	"errors"
	"fmt"

	"github.com/ntbnet/ntbnet/internal/onesided"
	"github.com/ntbnet/ntbnet/internal/symheap"
)

// Locks: a lock is one symmetric word, zero at first. It is a queue of PEs. Each waits for a
// word of its own heap, which the PE before it stores to. So waiting makes no traffic.
//
// The word has two halves of 4 bytes. The first, at PE 0, is the queue's tail: the
// number of its last PE, from 1, or 0 if nobody has the lock. The second, at each PE,
// is that PE's own place in the queue:
//
//	bit 31     it waits for the one before it
//	bit 30     it is in the queue
//	bits 0-29  the number of the PE behind it, from 1; 0: none yet
//
// To set the lock, a PE prepares its place and swaps its number into the tail. If
// another PE was there, it adds its number to that one's place, and waits until that
// one clears its bit 31. To clear the lock, a PE that is still the last takes its
// number out of the tail. Otherwise it waits until the next one's number is in its
// place, and clears that one's bit.

// Lock is a lock of all PEs, and of the goroutines of each. Like a Mutex, it does not
// belong to the goroutine that has set it: another goroutine of the PE may clear it.
type Lock struct {
	w      *World
	halves onesided.Object // two elements
}

const (
	lockHome = 0
	lockHalf = 4 // bytes
	lockTail = 0 // element numbers of the halves
	lockMine = 1
	lockWait = 1 << 31
	lockIn   = 1 << 30
	lockNext = lockIn - 1
)

// Lock returns the lock in the word of 8 bytes at an offset. The word must be zero at
// first on all PEs, and not be used for anything else.
func (w *World) Lock(off uintptr) Lock {
	w.Check()
	return Lock{w, onesided.Object{Space: w.space, Off: off, N: 2}}
}

// errNoLock reports that the words of a lock hold no numbers of PEs.
var errNoLock = errors.New("shmem: the words of a lock were overwritten")

// Set waits until this PE has the lock and no other goroutine of it has. If ctx ends first, the PE
// may stay in the queue.
func (l Lock) Set(ctx context.Context) error {
	w, off := l.w, l.halves.Off
	turn, err := w.take(ctx, off)
	if err != nil {
		return err
	}
	if err := l.queue(ctx); err != nil {
		w.turns.give(off, turn)
		return err
	}
	w.turns.own(turn)
	return nil
}

// queue waits until this PE's place is the first. The caller has the turn.
func (l Lock) queue(ctx context.Context) error {
	w := l.w
	if l.mine()&lockIn == 0 {
		l.do(symheap.Set, lockWait|lockIn, w.pe)
		before := w.ctx.Fetch(symheap.Swap, l.halves, lockTail, lockHalf, uint64(w.pe+1), 0, lockHome)
		if err := w.ctx.Err(); err != nil {
			return err
		}
		if before == 0 {
			l.do(symheap.And, ^uint32(lockWait), w.pe)
			return nil
		}
		if before > uint64(len(w.peers)) {
			return errNoLock
		}
		l.do(symheap.Or, uint32(w.pe+1), int(before)-1)
	}
	return w.space.Wait(ctx, func() bool { return l.mine()&lockWait == 0 })
}

// Test takes the lock if nobody has it, and reports whether it did.
func (l Lock) Test() (bool, error) {
	w, off := l.w, l.halves.Off
	turn := w.turns.tryTake(off)
	if turn == nil {
		return false, nil // another goroutine of this PE has it, or waits for it
	}
	got, err := l.test()
	if got {
		w.turns.own(turn)
	} else {
		w.turns.give(off, turn)
	}
	return got, err
}

// test takes the lock if nobody is in the queue. The caller has the turn.
func (l Lock) test() (bool, error) {
	c, pe := l.w.ctx, l.w.pe
	if v := l.mine(); v&lockIn != 0 { // an earlier Set was given up
		return v&lockWait == 0, nil
	}
	l.do(symheap.Set, lockIn, pe)
	if l.swapTail(0, pe+1) && c.Err() == nil {
		return true, nil
	}
	l.do(symheap.Set, 0, pe)
	return false, c.Err()
}

// Clear completes this PE's operations on the default context, and gives the lock to the next PE.
// After an error this PE still has it.
func (l Lock) Clear(ctx context.Context) error {
	w, off := l.w, l.halves.Off
	turn := w.turns.disown(off)
	if turn == nil {
		panic(fmt.Sprintf("shmem: PE %d clears a lock that it does not have", w.pe))
	}
	if err := l.pass(ctx); err != nil {
		w.turns.own(turn)
		return err
	}
	w.turns.give(off, turn)
	return w.ctx.Err()
}

// pass gives the lock to the next PE. The caller has the turn.
func (l Lock) pass(ctx context.Context) error {
	w := l.w
	if err := w.ctx.Quiet(); err != nil {
		return err
	}
	if l.mine()&lockNext == 0 && l.swapTail(w.pe+1, 0) {
		l.do(symheap.Set, 0, w.pe)
		return nil
	}
	// A PE is behind us in the queue, and about to store its number here.
	if err := w.space.Wait(ctx, func() bool { return l.mine()&lockNext != 0 }); err != nil {
		return err
	}
	next := int(l.mine()&lockNext) - 1
	if next >= len(w.peers) {
		return errNoLock
	}
	l.do(symheap.Set, 0, w.pe)
	l.do(symheap.And, ^uint32(lockWait), next)
	return nil
}

// mine returns this PE's own half.
func (l Lock) mine() uint32 { return uint32(l.halves.Word(lockMine, lockHalf)) }

// do does an operation that does not fetch on PE pe's place in the queue.
func (l Lock) do(op symheap.Op, v uint32, pe int) {
	l.w.ctx.Do(op, l.halves, lockMine, lockHalf, uint64(v), pe)
}

// swapTail makes the queue's tail to if it is old, and reports whether it was.
func (l Lock) swapTail(old, to int) bool {
	return l.w.ctx.Fetch(symheap.CompareSwap, l.halves, lockTail, lockHalf, uint64(to), uint64(old), lockHome) == uint64(old)
}
