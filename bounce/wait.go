package bounce

import (
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ntbnet/ntbnet/ntb"
)

// Reasons to stop waiting, as bits of waiter.stop.
const (
	stopClosed   = 1 << iota // Close was called
	stopDeadline             // the deadline has passed
	stopShut                 // CloseRead or CloseWrite was called
	stopDown                 // the link is down
	stopBroken               // the peer broke the protocol
)

// spinners counts the goroutines that spin, so that they leave processors to
// those that work.
var spinners atomic.Int32

func maxSpinners() int32 {
	if runtime.NumCPU() == 1 {
		return 0
	}
	return int32(runtime.GOMAXPROCS(0)+1) / 2
}

// waiter is where the goroutine that holds one direction's lock waits.
type waiter struct {
	// wake has capacity 1. A token in it means: look again. There may be one
	// when nobody waits, which costs the next wait one round.
	wake   chan struct{}
	stop   atomic.Uint32
	parked atomic.Bool // stored before the last look; whoever wakes looks at it after the event

	// Guarded by the direction's lock.
	fails uint // spins in a row that ended without data
	skip  int  // waits that park at once
	hits  int  // spins in a row that ended by data
	// fenced: the peer knows by parkingBit that we park, and fences.
	fenced                 bool
	spins, spinHits, parks uint64

	mu       sync.Mutex
	deadline time.Time   // guarded by mu
	timer    *time.Timer // made with the first deadline; guarded by mu
}

func (w *waiter) init() { w.wake = make(chan struct{}, 1) }

// interrupt sets a reason to stop, and wakes who waits.
func (w *waiter) interrupt(why uint32) {
	w.stop.Or(why)
	w.notify()
}

// notify wakes who waits.
func (w *waiter) notify() {
	select {
	case w.wake <- struct{}{}:
	default: // there is a token already
	}
}

// setDeadline makes waits end at t, or never if t is zero.
func (w *waiter) setDeadline(t time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deadline = t
	switch d := time.Until(t); {
	case t.IsZero():
		w.stop.And(^uint32(stopDeadline))
		if w.timer != nil {
			w.timer.Stop()
		}
	case d <= 0:
		w.interrupt(stopDeadline)
	default:
		w.stop.And(^uint32(stopDeadline))
		if w.timer == nil {
			w.timer = time.AfterFunc(d, w.expire)
		} else {
			w.timer.Reset(d)
		}
	}
}

// expire runs when the timer fires, which may be too early: the deadline may
// have been moved after the timer was due.
func (w *waiter) expire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.deadline.IsZero() && time.Until(w.deadline) <= 0 {
		w.interrupt(stopDeadline)
	}
}

// stopTimer is for the end of the connection.
func (w *waiter) stopTimer() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deadline = time.Time{}
	if w.timer != nil {
		w.timer.Stop()
	}
}

// stopErr is the error of a Read or Write that must not go on, if any. What the
// connection's own end means differs by direction: see shut.
func stopErr(stop uint32, shut error) error {
	switch {
	case stop&stopClosed != 0:
		return ErrClosed
	case stop&stopDeadline != 0:
		return os.ErrDeadlineExceeded
	case stop&stopShut != 0:
		return shut
	}
	return nil
}

// spin looks until there is something, a reason to stop, or the budget is used
// up. It reports whether to look again rather than park.
func (w *waiter) spin(c *Pair, direction int) bool {
	if w.skip > 0 {
		w.skip--
		return false
	}
	if spinners.Add(1) > maxSpinners() {
		spinners.Add(-1)
		return false
	}
	defer spinners.Add(-1)
	w.spins++
	start := time.Now()
	for i := 1; ; i++ {
		if c.changed(direction) {
			w.hit()
			if w.fenced && w.hits >= unparkAfter {
				c.unpark(w, direction)
			}
			return true
		}
		if i&15 != 0 {
			ntb.Pause()
			continue
		}
		if w.stop.Load() != 0 || c.ended(direction) {
			return true
		}
		if c.peer.Pending() {
			c.peer.Poll()
		}
		if time.Since(start) > c.pool.opts.Spin {
			w.miss()
			return false
		}
	}
}

// unparkAfter is how many spins in a row must end by data before the peer is told
// that it need not fence any more. To park again costs a Device.Order.
const unparkAfter = 32

func (w *waiter) hit() {
	w.spinHits++
	w.hits++
	w.fails, w.skip = 0, 0
}

// miss makes the next waits park at once, more of them after each miss in a row.
func (w *waiter) miss() {
	w.hits = 0
	w.fails = min(w.fails+1, 6)
	w.skip = 1<<w.fails - 1
}

// woke counts how a parked wait ended: data that came soon would have been
// caught by spinning, so the next wait spins again.
func (w *waiter) woke(byData bool, after, spin time.Duration) {
	if byData && after < spin {
		w.fails, w.skip = 0, 0
	} else if !byData {
		w.miss()
	}
}
