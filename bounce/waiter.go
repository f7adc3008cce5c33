package bounce

import (
	"os"
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

// wait returns when there may be something to do: data or room, a reason to stop,
// or nothing at all. The caller holds the direction's lock and checks again.
//
// The order is: spin, arm, order, re-check, park. Arming is a word in the peer's
// memory. After Order, either the peer has seen it before it publishes what we wait
// for, and then notifies us, or we see here what it published (pair S1 for data, S2
// for room).
func (c *Pair) wait(w *waiter, direction int) {
	c.peer.Poll()
	if c.tx.dma != nil && direction == ring.Data {
		c.tx.dma.kick(startRead) // the peer may have to read that before it answers
	}
	if c.changed(direction) || w.stop.Load() != 0 || c.ended(direction) {
		return
	}
	if c.pool.opts.Spin > 0 && w.spin(c, direction) {
		return
	}
	w.parked.Store(true) // pair S13, with Notified
	defer w.parked.Store(false)
	if c.routed {
		c.watch(w, direction)
		return
	}
	if direction == ring.Data {
		c.publishCredit() // all of it: the writer may need it before we wake
		c.dataArm++
		c.publishArm(direction, armedBit|parkingBit)
	} else {
		c.armSpace(parkingBit)
	}
	unsure := false
	if !c.pool.opts.skipLookAgain {
		unsure = c.order(w)
		if c.changed(direction) || w.stop.Load() != 0 || c.ended(direction) {
			c.publishArm(direction, parkingBit)
			return
		}
		c.peer.Poll()
	}
	w.counts.parks++
	c.saveStats(direction)
	if unsure {
		w.lookSoon()
	}
	<-w.wake // pair S9: our next check comes after it
	if unsure {
		w.soon.Stop()
	}
	switch {
	case c.changed(direction):
	case w.stop.Load() != 0:
		// The peer may ring once without need. To prevent that would take a store, which
		// must not hold up a call that has to stop.
		w.guess.miss()
	default:
		c.publishArm(direction, parkingBit) // so that the peer does not ring without need
	}
	w.yielded = time.Now()
}

// watch is the end of wait where frames lead to the peer. What the peer publishes is
// seen to arrive. So a reader need not arm, which would cost a frame, nor wait until
// the peer knows, which would cost a round trip. If the peer needs credit before we
// wake, it arms, in a line that is watched too. The caller holds the direction's lock.
func (c *Pair) watch(w *waiter, direction int) {
	here := c.slot // the number of our line
	w.watch.Lines = [2]int{here, here}
	if direction == ring.Data {
		w.watch.Lines[1] = (c.rx.off + c.rx.pos) / line
	}
	c.peer.Watch(&w.watch)
	defer c.peer.Unwatch(&w.watch)
	if direction == ring.Space {
		// In answer, the peer's reader gives back all credit, and perhaps a larger
		// queue.
		c.armSpace(0)
	}
	for !c.changed(direction) && w.stop.Load() == 0 && !c.ended(direction) {
		if direction == ring.Data && armed(ntb.Load32(c.line, offSpaceArm), c.spaceSeen) {
			c.publishCredit()
		}
		c.peer.Poll()
		w.counts.parks++
		c.saveStats(direction)
		<-w.wake
	}
	if w.stop.Load() != 0 {
		w.guess.miss()
	}
	w.yielded = time.Now()
}

// order comes between arming and the re-check. The first time, and on a bridge each
// time, the device must order both sides' stores (pairs S1 and S2). Where memory is
// coherent, once the peer certainly knows that we park, it fences after each publish,
// and a fence here is enough (pair S3). order reports whether to check once more after
// a while, see soonLook.
func (c *Pair) order(w *waiter) (unsure bool) {
	if w.fenced {
		ntb.Fence()
		return false
	}
	c.peer.Order()
	w.fenced = c.peer.Caps().Coherent && !c.fence
	return w.fenced
}

// soonLook is the time after which a wait checks once more if its order was only a
// membarrier. Linux leaves out a processor on which a thread of the publisher's process
// has ended, until another process runs there (internal/litmus has the details). What
// that thread has stored is visible long before this time.
const soonLook = 10 * time.Millisecond

// lookSoon wakes the present wait once after soonLook. The caller holds the
// direction's lock.
func (w *waiter) lookSoon() {
	if w.soon == nil {
		w.soon = time.AfterFunc(soonLook, w.notify)
	} else {
		w.soon.Reset(soonLook)
	}
}

// unpark takes parkingBit back, because waits spin again.
func (c *Pair) unpark(w *waiter, direction int) {
	w.fenced = false
	c.publishArm(direction, 0)
}
