package shmem

import (
	"context"

	"github.com/ntbnet/ntbnet/internal/lock"
)

// The queue of a lock has a place for each PE. Which goroutine of a PE uses it is settled
// here, before anything is said to other PEs.

// turns has the locks that goroutines of this PE ask for or have.
type turns struct {
	mu  lock.Mutex[lock.Turns]
	all map[uintptr]*turn // by the lock's offset; guarded by mu
}

// turn is the right to use this PE's place in one lock's queue. A goroutine has it while
// it asks for the lock, and as long as it has that.
type turn struct {
	taken chan struct{} // holds one while a goroutine has the turn
	users int           // goroutines that have it or wait for it; guarded by turns.mu
	owned bool          // with the lock; guarded by turns.mu
}

// user is the turn at an offset, with one more user.
func (t *turns) user(off uintptr) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all = map[uintptr]*turn{}
	}
	one := t.all[off]
	if one == nil {
		one = &turn{taken: make(chan struct{}, 1)}
		t.all[off] = one
	}
	one.users++
	return one
}

// leave takes a user off. What nobody uses is forgotten.
func (t *turns) leave(off uintptr, one *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	one.users--
	if one.users == 0 && t.all[off] == one {
		delete(t.all, off)
	}
}

// forget is for n bytes of the heap that are freed: a lock that was there, and was not
// cleared, is none any more.
func (t *turns) forget(off uintptr, n uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for at := range t.all {
		if at >= off && uint64(at-off) < n {
			delete(t.all, at)
		}
	}
}

// take waits for the turn.
func (w *World) take(ctx context.Context, off uintptr) (*turn, error) {
	one := w.turns.user(off)
	select {
	case one.taken <- struct{}{}:
		return one, nil
	default:
	}
	var err error
	select {
	case one.taken <- struct{}{}:
		return one, nil
	case <-w.failed:
		err = w.failure
	case <-ctx.Done():
		err = ctx.Err()
	}
	w.turns.leave(off, one)
	return nil, err
}

// tryTake takes the turn if nobody has it; else it returns nil.
func (t *turns) tryTake(off uintptr) *turn {
	one := t.user(off)
	select {
	case one.taken <- struct{}{}:
		return one
	default:
		t.leave(off, one)
		return nil
	}
}

// give gives the turn to the goroutine that waits longest.
func (t *turns) give(off uintptr, one *turn) {
	<-one.taken
	t.leave(off, one)
}

// own notes that the turn's goroutine has the lock.
func (t *turns) own(one *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	one.owned = true
}

// disown is for who is about to clear the lock, once. It returns nil if this PE does not
// have the lock.
func (t *turns) disown(off uintptr) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	one := t.all[off]
	if one == nil || !one.owned {
		return nil
	}
	one.owned = false
	return one
}
