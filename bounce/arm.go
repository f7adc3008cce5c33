package bounce

import (
	"time"

	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ring"
)

// announce is called after a record was published. If the peer's reader has announced
// that it is about to sleep, announce notifies it, once for each such announcement.
// Write calls it, and so does the completion of a DMA engine. It pairs with wait:
// either this side sees the peer's arm, or the peer sees the record (pair S1).
func (c *Pair) announce() {
	for {
		seen := c.dataSeen.Load()
		arm := c.peerArm(offDataArm, seen)
		if !armed(arm, seen) {
			return
		}
		if c.dataSeen.CompareAndSwap(seen, arm) {
			c.doorbells.Add(1)
			c.peer.Notify(c.farSlot, ring.Data)
			return
		}
	}
}

// peerArm looks at an arm word of the peer after we published. If the word has not
// changed, a fence must come before the look in two cases: this device needs one,
// or the peer asks for it by parkingBit. With parkingBit the peer need not order
// our stores itself each time that it parks (pair S3, with order).
func (c *Pair) peerArm(off int, seen uint32) uint32 {
	arm := ntb.Load32(c.line, off)
	if !armed(arm, seen) && (c.fence || arm&parkingBit != 0) {
		ntb.Fence()
		arm = ntb.Load32(c.line, off)
	}
	return arm
}

// The low bits of an arm word. The bits above distinguish one arm from the next.
const (
	parkingBit = 1 << iota // fence between each publish and the look at this word
	armedBit               // the side that published it sleeps or is about to
	growBit                // that side also wants a larger queue; in space arms only
	armShift   = iota
)

// armed reports whether the peer sleeps, or is about to, and was not notified yet.
func armed(arm, seen uint32) bool { return arm&armedBit != 0 && (arm^seen)>>armShift != 0 }

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

// armSpace arms for room, and asks for a larger queue if that would help: the peer's
// reader answers when it reads; its link's goroutine grants a queue now, if it can.
// Beyond bulkQueue, where memory may be short for long, it is told once for each queue.
// Over several hops a later arm can replace this one on its way, and come behind what
// tells of it: a queue that is large already stays as it is then, and credit comes for
// that arm as for any other. The caller holds wmu.
func (c *Pair) armSpace(bits uint32) {
	c.spaceArm++
	bits |= armedBit
	if !c.tx.wantsLarger() {
		c.publishArm(ring.Space, bits)
		return
	}
	c.publishArm(ring.Space, bits|growBit)
	if c.tx.size < bulkQueue || c.askedIn != c.tx.gen {
		c.askedIn = c.tx.gen
		c.peer.Notify(c.farSlot, ring.Data)
	}
}

// askToGrow asks for a larger queue, once for each queue, during a wait for room
// that may well come before we park. The caller holds wmu.
func (c *Pair) askToGrow(w *waiter) {
	if c.askedIn == c.tx.gen || !c.tx.wantsLarger() {
		return
	}
	if w.fenced {
		c.armSpace(parkingBit)
	} else {
		c.armSpace(0)
	}
}

// publishArm publishes our arm word of a direction with the given low bits.
func (c *Pair) publishArm(direction int, bits uint32) {
	if direction == ring.Data {
		c.far.Update32(offDataArm, c.dataArm<<armShift|bits)
	} else {
		c.far.Update32(offSpaceArm, c.tx.gen<<24|c.spaceArm<<armShift&0xffffff|bits)
	}
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
