package shmem

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ntbnet/ntbnet/ntb"
)

// Whoever waits looks at a word of its own heap: for a while, and then it sleeps.
// A PE that has the heap mapped stores there without a word to anyone. So before it
// sleeps, a PE changes the arm word at the beginning of its heap, which every PE
// looks at after its stores; then it makes all processors pass a barrier, and looks
// once more. Those who work pay a load for that, and no barrier. Who sees the change
// sends a request to wake, once.

// sleepers are the goroutines of this PE that sleep.
type sleepers struct {
	mu   sync.Mutex
	bell chan struct{} // closed, and replaced, to wake all; guarded by mu
}

func (s *sleepers) init() { s.bell = make(chan struct{}) }

// next is closed when wake is called next.
func (s *sleepers) next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bell
}

func (s *sleepers) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.bell)
	s.bell = make(chan struct{})
}

// Times of a wait.
const (
	spinFor  = 200 * time.Microsecond
	spinMost = 10 * time.Millisecond // after it was woken in vain
	// looks is how many looks lie between two at the clock.
	looks = 64
	// Who is to store it may need this very processor, even where there are enough:
	// the scheduler likes to put whom this PE wakes on the same one, and does not move
	// PEs that take turns. So the processor is offered after each shareEach looks,
	// which take longer than a neighbour's answer; where PEs have to take turns
	// anyway, after each look from shareAfter on.
	shareEach  = 16
	shareAfter = 8
	// giveWay is how often other goroutines get a chance.
	giveWay = 20 * time.Microsecond
	// pollEach is how long a wait pauses where nobody can be trusted to wake it.
	pollEach = time.Millisecond
)

// wait returns nil when look is true: at once, or when someone has stored what
// makes it so. It returns an error if a PE has ended, or ctx.
func (w *World) wait(ctx context.Context, look func() bool) error {
	if look() {
		return nil
	}
	for budget := spinFor; ; budget = min(2*budget, spinMost) {
		if w.spin(look, budget) {
			return nil
		}
		if done, err := w.park(ctx, look); done || err != nil {
			return err
		}
		// Others store here, though not yet what is waited for: each sleep costs the next
		// of them a request.
	}
}

// spin looks again and again for a while.
func (w *World) spin(look func() bool, budget time.Duration) bool {
	var begin, gave time.Time
	for i := 1; ; i++ {
		if look() {
			return true
		}
		if i%shareEach == 0 || w.crowded && i >= shareAfter {
			osYield()
		} else {
			ntb.Pause()
		}
		if i%looks != 0 {
			continue
		}
		now := time.Now()
		switch {
		case begin.IsZero():
			begin, gave = now, now
		case now.Sub(begin) > budget || w.Err() != nil:
			return false
		case now.Sub(gave) > giveWay:
			runtime.Gosched()
			gave = now
		}
	}
}

// park sleeps until something is stored here. It reports whether look was true. It pairs
// with peer.armed (pair S8).
func (w *World) park(ctx context.Context, look func() bool) (bool, error) {
	bell := w.sleepers.next()
	atomic.AddUint32(w.self.arm, 1)
	var again <-chan time.Time
	if w.self.fence {
		ntb.Fence() // as all others do after each store
	} else if w.barrier() != nil {
		// It worked when the process began, so others make no barrier after their stores:
		// one may have overlooked the arm word. So this is no sleep, but a pause.
		again = time.After(pollEach)
	}
	if look() {
		return true, nil
	}
	select {
	case <-again:
		return look(), nil
	case <-bell:
		return false, nil
	case <-w.failed:
		if look() { // it came before
			return true, nil
		}
		return false, w.failure
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

func fullFence() { ntb.Fence() }

// WaitUntil waits until element i of s here is OP v, like shmem_wait_until. Another
// PE's atomic operation, P, put of one element or signal makes it so. ctx ends it
// early. It fails if a PE of the job ends.
func WaitUntil[T AMO](ctx context.Context, s Sym[T], i int, op Cmp, v T) error {
	p := s.local(i)
	if compare(atomicLoad(p), op, v) {
		return nil
	}
	return s.w.wait(ctx, func() bool { return compare(atomicLoad(p), op, v) })
}

// Test tells if element i of s here is OP v, like shmem_test.
func Test[T AMO](s Sym[T], i int, op Cmp, v T) bool {
	return compare(atomicLoad(s.local(i)), op, v)
}
