package bounce

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ring"
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

// worked counts the work of a call, and yields to other goroutines from time to
// time.
func (w *waiter) worked(n int) {
	if w.work += n + callCost; w.work > turnWork<<w.turns {
		w.work = 0
		w.turns.yield(time.Now())
	}
}
