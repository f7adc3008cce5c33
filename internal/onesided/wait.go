package onesided

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/internal/wait"
	"github.com/ntbnet/ntbnet/ntb"
)

// A PE that waits polls a word of its own heap for a while, and then sleeps. A PE
// that has the heap mapped stores there without a request. So before a PE sleeps, it
// changes the arm word at the beginning of its heap. Then it makes all processors
// pass a barrier, and polls once more. Every PE loads the arm word after its stores.
// So a PE that stores pays for a load only, not for a barrier. Where the sleeper has no such
// barrier, both sides fence. A PE that sees the
// change sends a request to wake, once. Where all stores of other PEs are made by servers of this
// process, a wait sleeps at once, and fences as Target.Stored does.

// sleepers are the goroutines of this PE that sleep.
type sleepers struct {
	mu     lock.Mutex[lock.Sleeper]
	asleep []*bell // one for each that sleeps; guarded by mu
	spare  []*bell // for reuse; guarded by mu
	// threads says how threads of C sleep, nil for goroutines; set before the first wait.
	threads *Threads
}

// add returns a bell that the next wake rings. The caller passes it to
// remove afterwards.
func (s *sleepers) add() *bell {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.spare) == 0 {
		s.spare = append(s.spare, &bell{rung: make(chan struct{}, 1)})
	}
	last := len(s.spare) - 1
	bell := s.spare[last]
	s.spare = s.spare[:last]
	s.asleep = append(s.asleep, bell)
	return bell
}

// remove ends what add began, whether woken or not.
func (s *sleepers) remove(bell *bell) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.asleep, bell); i >= 0 {
		s.asleep = slices.Delete(s.asleep, i, i+1)
	}
	bell.clear()
	s.spare = append(s.spare, bell)
}

// wake wakes all sleepers.
func (s *sleepers) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, bell := range s.asleep {
		bell.ring(s.threads)
	}
	s.asleep = s.asleep[:0]
}

// Wait returns nil when look returns true, either at once or after a PE has stored
// what makes it so. It returns an error if a PE has ended, or ctx.
func (s *Space) Wait(ctx context.Context, look func() bool) error {
	if look() {
		return nil
	}
	for budget := wait.ManyTimes * wait.Usual; ; budget = min(2*budget, 10*wait.LookAgain) {
		if s.spin(look, budget) {
			return nil
		}
		if done, err := s.park(ctx, look); done || err != nil {
			return err
		}
		// Other stores wake this PE before the awaited one. Each sleep costs the next PE
		// that stores a request.
	}
}

// spin polls for budget. It reports whether look returned true.
func (s *Space) spin(look func() bool, budget time.Duration) bool {
	if s.served.Load() {
		return false
	}
	polls := wait.NewSpinner(wait.Config{Budget: budget, Yield: wait.Yield, Crowded: s.crowded, Always: true, Once: true})
	return polls.Poll(look)
}

// park sleeps until something is stored here. It reports whether look returned true. It
// pairs with Peer.Stored (pair S8).
func (s *Space) park(ctx context.Context, look func() bool) (bool, error) {
	bell := s.sleepers.add()
	defer s.sleepers.remove(bell)
	arm := atomic.AddUint32(s.self.arm, 1)
	s.publishArm(arm)
	again, armed := s.recheck, true
	if s.self.fence {
		ntb.Fence() // as all others do after each store
	} else if s.barrier() != nil {
		// The barrier worked when the process began, so other PEs make none after their
		// stores. One may have overlooked the arm word. So this is a pause rather than a
		// sleep.
		again, armed = wait.LookAgain, false
	}
	if look() {
		return true, nil
	}
	if s.sleepers.threads != nil {
		return s.parkThread(ctx, bell, look, again, armed)
	}
	var tick <-chan time.Time
	if again > 0 {
		t := time.NewTicker(again)
		defer t.Stop()
		tick = t.C
	}
	for {
		select {
		case <-tick:
			if done := look(); done || !armed {
				return done, nil
			}
		case <-bell.rung:
			return false, nil
		case <-s.failed:
			if look() { // the store came before the arm word
				return true, nil
			}
			return false, s.Err()
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

func fullFence() { ntb.Fence() }
