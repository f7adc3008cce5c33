package job

import (
	"context"

	"github.com/ntbnet/ntbnet/internal/lock"
)

// The queue of a lock has one place for each PE. The turn decides which goroutine of a PE
// uses it, before other PEs are involved.

// turns has a turn for each lock that goroutines of this PE ask for or have.
type turns struct {
	mu  lock.Mutex[lock.Turns]
	all map[uintptr]*turn // by the lock's offset; guarded by mu
}

// turn is the right to use this PE's place in one lock's queue. A goroutine has it while
// it waits for the lock, and as long as it holds the lock.
type turn struct {
	taken chan struct{} // has an element while a goroutine has the turn
	users int           // goroutines that have the turn or wait for it; guarded by turns.mu
	owned bool          // the goroutine that has the turn also has the lock; guarded by turns.mu
}

// user returns the turn of the lock at an offset, after adding one user.
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

// leave removes a user. A turn without users is deleted.
func (t *turns) leave(off uintptr, one *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	one.users--
	if one.users == 0 && t.all[off] == one {
		delete(t.all, off)
	}
}

// forget deletes the turns of locks in n bytes of the heap that are freed. A lock that
// was there and not cleared no longer exists.
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
	case <-w.space.Failed():
		err = w.space.Err()
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

// give gives the turn to the goroutine that has waited longest.
func (t *turns) give(off uintptr, one *turn) {
	<-one.taken
	t.leave(off, one)
}

// own notes that the goroutine that has the turn has the lock.
func (t *turns) own(one *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	one.owned = true
}

// disown is called by the goroutine that is about to clear the lock. Only one caller
// succeeds. It returns nil if this PE does not have the lock.
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
