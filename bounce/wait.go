package bounce

import (
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ring"
)

// Reasons to stop waiting, as bits of waiter.stop.
const (
	stopClosed   = 1 << iota // Close was called
	stopDeadline             // the deadline has passed
	stopShut                 // CloseRead or CloseWrite was called
	stopDown                 // the link is down
	stopBroken               // the peer broke the protocol
)

// spinners counts the goroutines that spin, so that they leave processors to those
// that work.
var spinners atomic.Int32

func maxSpinners() int32 {
	if runtime.NumCPU() == 1 {
		return 0
	}
	return int32(runtime.GOMAXPROCS(0)+1) / 2
}

// waiter is where the goroutine that holds one direction's lock waits.
type waiter struct {
	// wake has capacity 1. A token in it means: check again. There may be one when
	// nothing waits, which costs the next wait one round.
	wake   chan struct{}
	stop   atomic.Uint32
	parked atomic.Bool // stored before the re-check; the waker loads it after the event (pair S13)
	watch  ring.Watch  // for a routed peer; guarded by the direction's lock

	// Guarded by the direction's lock.
	guesses [2]guess
	guess   *guess      // the guess for the call under way
	hits    int         // number of spins in a row that ended by data
	soon    *time.Timer // for lookSoon; made when first needed
	fenced  bool        // the peer knows by parkingBit that we park, and fences
	early   vain        // yields during a spin
	turns   vain        // yields at the end of a turn
	yielded time.Time   // when other goroutines last had a chance to run here
	work    int         // work done since then, see worked

	counts waitCounts

	mu     lock.Mutex[lock.Wait]
	timer  *time.Timer // calls expire; made with the first deadline; guarded by mu
	timing bool        // timer is set, and expire has not taken that into account; guarded by mu
	late   int         // calls of expire to come for deadlines that were moved; guarded by mu
}

// waitCounts are the counters of Stats.
type waitCounts struct {
	spins, spinHits, spared, parks uint64
}

func (w *waiter) init() {
	w.wake = make(chan struct{}, 1)
	w.guess = &w.guesses[0]
}

// interrupt sets a reason to stop, and wakes the waiter.
func (w *waiter) interrupt(why uint32) {
	w.stop.Or(why)
	w.notify()
}

// notify wakes the waiter, which then finds what the caller stored before.
func (w *waiter) notify() {
	// A channel that appears full is left alone, at once and without a lock. The waiter
	// that takes the token out of it must not look before our stores are visible (pair S9).
	ntb.Fence()
	select {
	case w.wake <- struct{}{}:
	default: // there is a token already
	}
}

// setLimit makes waits end after left, or never if they are not limited.
func (w *waiter) setLimit(limited bool, left time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopTimerLocked()
	switch {
	case !limited:
		w.stop.And(^uint32(stopDeadline))
	case left <= 0:
		w.interrupt(stopDeadline)
	default:
		w.stop.And(^uint32(stopDeadline))
		w.timing = true
		if w.timer == nil {
			w.timer = time.AfterFunc(left, w.expire)
		} else {
			w.timer.Reset(left)
		}
	}
}

// expire runs when the timer fires, perhaps after the deadline was moved.
func (w *waiter) expire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.late > 0 {
		w.late--
		return
	}
	w.timing = false
	w.interrupt(stopDeadline)
}

// stopTimer is called at the end of the connection.
func (w *waiter) stopTimer() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopTimerLocked()
}

// stopTimerLocked stops the timer, if it is set. The caller holds mu.
func (w *waiter) stopTimerLocked() {
	if w.timing && !w.timer.Stop() {
		w.late++ // expire waits for mu, or will
	}
	w.timing = false
}

// stopErr returns the error of a Read or Write that must not access the connection, if
// any.
func stopErr(stop uint32) error {
	switch {
	case stop&stopClosed != 0:
		return ErrClosed
	case stop&stopDeadline != 0:
		return os.ErrDeadlineExceeded
	}
	return nil
}

// spin polls until there is something, a reason to stop, or the budget is used up.
// It reports whether to check again rather than park.
func (w *waiter) spin(c *Pair, direction int) bool {
	if !w.guess.spins() {
		return false
	}
	if spinners.Add(1) > maxSpinners() {
		spinners.Add(-1)
		return false
	}
	defer spinners.Add(-1)
	start := time.Now()
	if start.Sub(w.yielded) > turn<<w.turns {
		start = w.turns.yield(start)
		w.yielded, w.work = start, 0
	}
	spent := spending{thrift: c.pool.opts.Thrift, looked: start}
	if !spent.may() {
		w.counts.spared++
		return false
	}
	w.counts.spins++
	budget := w.guess.budget(c.pool.opts.Spin)
	yieldAt := firstYield << w.early
	for i := 1; ; i++ {
		if i == yieldAt {
			now := time.Now()
			spent.look(now)
			if i == firstYield<<w.early {
				spent.yielded(w.early.yield(now)) // later yields of this spin say nothing
			} else {
				runtime.Gosched()
				spent.yielded(time.Now())
			}
			yieldAt = i + 2*firstYield<<w.early
			if direction == ring.Space {
				c.askToGrow(w)
			}
		}
		if c.changed(direction) {
			w.counts.spinHits++
			w.hits++
			w.guess.hit()
			if i > 2*firstYield { // before that, the clock costs more than was spent
				spent.look(time.Now())
			}
			if spent.scarce {
				spent.end(true)
			}
			if w.fenced && w.hits >= unparkAfter {
				c.unpark(w, direction)
			}
			return true
		}
		if i&15 != 0 {
			ntb.Pause()
			continue
		}
		if c.peer.Pending() {
			c.peer.Poll()
		}
		stopped := w.stop.Load() != 0 || c.ended(direction)
		now := time.Now()
		spent.look(now)
		if stopped || now.Sub(start) > budget {
			spent.end(false)
			w.hits = 0
			w.guess.miss()
			return stopped
		}
	}
}

// SpinUntil polls done, and what the peer announces, for as long as a wait may
// spin, if at all. It reports whether done returned true.
func (p *Pool) SpinUntil(done func() bool) bool {
	if p.opts.Spin <= 0 {
		return done()
	}
	start := time.Now()
	spent := spending{thrift: p.opts.Thrift, looked: start}
	if !spent.may() {
		return done()
	}
	defer spinners.Add(-1)
	if spinners.Add(1) > maxSpinners() {
		return done()
	}
	for i := 1; !done(); i++ {
		p.peer.Poll()
		ntb.Pause()
		if i&15 != 0 {
			continue
		}
		now := time.Now()
		spent.look(now)
		if now.Sub(start) > p.opts.Spin {
			spent.end(false)
			return false
		}
	}
	spent.look(time.Now())
	spent.end(true)
	return true
}

// unparkAfter is how many spins in a row must end by data before the peer is told
// that it need not fence any more. To park again costs a Device.Order.
const unparkAfter = 32

// guess predicts whether a wait should spin, from how the last ones ended.
type guess struct {
	fails int // spins in a row that ended without data, at most maxFails
	skip  int // waits that will park at once
}

// A few unsuccessful spins mean little: the peer was parked, and waking it takes
// longer than a spin lasts. If we parked more often than the peer because of that,
// it would find us parked in turn, and both would stay so. Many in a row mean that
// waits are long, or that the peer needs the processor on which we spin.
const (
	patience = 4
	maxFails = patience + 5
)

// guessFor chooses the guess for a Read of n bytes. Reads of a single byte have a
// guess of their own: net/http's servers keep one waiting while a handler runs, and
// it ends without data.
func (w *waiter) guessFor(n int) {
	if n == 1 {
		w.guess = &w.guesses[1]
	} else {
		w.guess = &w.guesses[0]
	}
}

// spins reports whether the next wait should spin.
func (g *guess) spins() bool {
	if g.skip > 0 {
		g.skip--
		return false
	}
	return true
}

// budget returns how long the spin that spins allowed may last. The rare one after
// many misses lasts longer. Where being woken takes longer than a spin, two sides
// that both park would never find each other spinning.
func (g *guess) budget(spin time.Duration) time.Duration {
	if g.fails == maxFails {
		return 4 * spin
	}
	return spin
}

func (g *guess) hit() { g.fails, g.skip = 0, 0 }

// miss makes the next wait park at once, and after many misses in a row more of
// them, up to 63.
func (g *guess) miss() {
	g.fails = min(g.fails+1, maxFails)
	g.skip = 2<<max(0, g.fails-patience) - 1
}
