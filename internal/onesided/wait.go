package onesided

import (
	"context"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/ntb"
)

// A PE that waits polls a word of its own heap for a while, and then sleeps. A PE
// that has the heap mapped stores there without a request. So before a PE sleeps, it
// changes the arm word at the beginning of its heap. Then it makes all processors
// pass a barrier, and polls once more. Every PE loads the arm word after its stores.
// So a PE that stores pays for a load only, not for a barrier. Where the sleeper has no such
// barrier, both sides fence. A PE that sees the
// change sends a request to wake, once.

// sleepers are the goroutines of this PE that sleep.
type sleepers struct {
	mu     lock.Mutex[lock.Sleeper]
	asleep []chan struct{} // one empty channel for each that sleeps; guarded by mu
	spare  []chan struct{} // channels for reuse; guarded by mu
}

// lieDown returns a channel on which the next wake sends. The caller passes it to
// getUp afterwards.
func (s *sleepers) lieDown() chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.spare) == 0 {
		s.spare = append(s.spare, make(chan struct{}, 1))
	}
	last := len(s.spare) - 1
	bell := s.spare[last]
	s.spare = s.spare[:last]
	s.asleep = append(s.asleep, bell)
	return bell
}

// getUp ends what lieDown began, whether woken or not.
func (s *sleepers) getUp(bell chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.asleep, bell); i >= 0 {
		s.asleep = slices.Delete(s.asleep, i, i+1)
	}
	select {
	case <-bell:
	default:
	}
	s.spare = append(s.spare, bell)
}

// wake wakes all sleepers.
func (s *sleepers) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, bell := range s.asleep {
		bell <- struct{}{} // there is room: each channel is sent to once
	}
	s.asleep = s.asleep[:0]
}

// Times of a wait.
const (
	spinFor  = 200 * time.Microsecond
	spinMost = 10 * time.Millisecond // after a wake that was not needed
	// The PE that is to store the word may need this very processor, even where there
	// are enough. The scheduler tends to put a PE that this one wakes on the same
	// processor, and does not move PEs that take turns. So a wait offers its processor
	// to others after each shareEach polls, which take longer than a neighbour's
	// answer. Where PEs have to take turns anyway, it does so after each poll from
	// shareAfter on.
	shareEach  = 16
	shareAfter = 8
	// giveWay is the time after which other goroutines get a chance to run.
	giveWay = 20 * time.Microsecond
	// An offer that takes slowOffer means that another process computes. Then waits
	// sleep after shortSpin polls, for as long as the offer took. After each further
	// slow offer they do so for twice as long, up to slowMost times. The reason: only a
	// sleeper gets the processor as soon as it has something to do.
	slowOffer = 2 * time.Millisecond
	slowMost  = 32
	shortSpin = 64
	// pollEach is how long a wait pauses between polls where other PEs cannot be
	// relied on to wake it.
	pollEach = time.Millisecond
)

// offers decides when a PE offers its processor to others.
type offers struct {
	yield func()       // yields this processor
	epoch time.Time    // when the space was made
	until atomic.Int64 // no offers before this time, in nanoseconds since epoch
	times atomic.Int64 // length of that time, as a multiple of the last offer
}

// slow reports whether an offer would take long at the time now.
func (o *offers) slow(now time.Time) bool { return int64(now.Sub(o.epoch)) < o.until.Load() }

// offer yields this processor, and returns the time after that.
func (o *offers) offer(now time.Time) time.Time {
	o.yield()
	after := time.Now()
	took, times := after.Sub(now), o.times.Load()
	if took >= slowOffer {
		times = min(max(1, 2*times), slowMost)
		o.times.Store(times)
		o.until.Store(int64(after.Sub(o.epoch)) + times*int64(took))
	} else if times != 0 {
		o.times.Store(0)
	}
	return after
}

// Wait returns nil when look returns true, either at once or after a PE has stored
// what makes it so. It returns an error if a PE has ended, or ctx.
func (s *Space) Wait(ctx context.Context, look func() bool) error {
	if look() {
		return nil
	}
	for budget := spinFor; ; budget = min(2*budget, spinMost) {
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

// spin calls look again and again for a while. It reports whether look returned
// true.
func (s *Space) spin(look func() bool, budget time.Duration) bool {
	var begin, gave time.Time
	for i := 1; ; i++ {
		if look() {
			return true
		}
		if i%shareEach != 0 && (!s.crowded || i < shareAfter) {
			ntb.Pause()
			continue
		}
		now := time.Now()
		if begin.IsZero() {
			begin, gave = now, now
		}
		if s.offers.slow(now) {
			if i >= shortSpin {
				return false
			}
			continue
		}
		now = s.offers.offer(now)
		switch {
		case now.Sub(begin) > budget || s.Err() != nil:
			return look()
		case now.Sub(gave) > giveWay:
			runtime.Gosched()
			gave = now
		}
	}
}

// park sleeps until something is stored here. It reports whether look returned true. It
// pairs with Peer.Stored (pair S8).
func (s *Space) park(ctx context.Context, look func() bool) (bool, error) {
	bell := s.sleepers.lieDown()
	defer s.sleepers.getUp(bell)
	atomic.AddUint32(s.self.arm, 1)
	var again <-chan time.Time
	if s.self.fence {
		ntb.Fence() // as all others do after each store
	} else if s.barrier() != nil {
		// The barrier worked when the process began, so other PEs make none after their
		// stores. One may have overlooked the arm word. So this is a pause rather than a
		// sleep.
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
	case <-s.failed:
		if look() { // the store came before the arm word
			return true, nil
		}
		return false, s.failure
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

func fullFence() { ntb.Fence() }
