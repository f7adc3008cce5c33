package bounce

import (
	"time"

	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ring"
)

// announce follows a published record: if the peer's reader said that it is
// about to sleep, it is notified, once for each time that it said so. Besides
// Write, a DMA engine's completion calls it. It pairs with wait: either we see its arm
// here, or it sees the record there (pair S1).
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

// peerArm looks at an arm word of the peer after we published. Unless it has
// changed, a fence must come before the look if this device needs one, or if the
// peer asks for it by parkingBit, so that it need not order our stores itself
// each time that it parks (pair S3, with order).
func (c *Pair) peerArm(off int, seen uint32) uint32 {
	arm := ntb.Load32(c.line, off)
	if !armed(arm, seen) && (c.fence || arm&parkingBit != 0) {
		ntb.Fence()
		arm = ntb.Load32(c.line, off)
	}
	return arm
}

// The low bits of an arm word. The bits above tell one arm from the next.
const (
	parkingBit = 1 << iota // fence between each publish and the look at this word
	armedBit               // whoever published it is about to sleep or sleeps
	growBit                // and wants a larger queue; in space arms only
	armShift   = iota
)

// armed tells that the peer sleeps, or is about to, and was not notified yet.
func armed(arm, seen uint32) bool { return arm&armedBit != 0 && (arm^seen)>>armShift != 0 }

// wait returns when there may be something to do: data or room, a reason to
// stop, or nothing at all. The caller holds the direction's lock and looks
// again.
//
// The order is: spin, arm, order, look again, park. Arming is a word in the
// peer's memory. After Order, either the peer has seen it before it publishes
// what we wait for, and then notifies us, or we see here what it published (pair S1
// for data, S2 for room).
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
	<-w.wake // pair S9: our next look comes after it
	if unsure {
		w.soon.Stop()
	}
	switch {
	case c.changed(direction):
	case w.stop.Load() != 0:
		// The peer may ring for nothing, once. To tell it would be a store, which must not
		// keep a call that has to stop.
		w.guess.miss()
	default:
		c.publishArm(direction, parkingBit) // so that the peer does not ring for nothing
	}
	w.yielded = time.Now()
}

// watch is wait's end where frames lead to the peer: what it publishes is seen to
// arrive, so a reader need not arm, which would be a frame, nor wait until the peer
// knows, which would be a round trip. The peer may need credit before we wake; then it
// arms, in a line that is watched too. The caller holds the direction's lock.
func (c *Pair) watch(w *waiter, direction int) {
	here := c.slot // the number of our line
	w.watch.Lines = [2]int{here, here}
	if direction == ring.Data {
		w.watch.Lines[1] = (c.rx.off + c.rx.pos) / line
	}
	c.peer.Watch(&w.watch)
	defer c.peer.Unwatch(&w.watch)
	if direction == ring.Space {
		// The peer's reader gives back all credit for it, and perhaps a larger queue.
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
// The caller holds wmu.
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

// askToGrow asks for a larger queue, once for each, while waiting for room that
// may well come before we park. The caller holds wmu.
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

// order comes between arming and the last look. Once the peer is sure to know
// that we park, it fences after each publish, and a fence here is enough, where
// memory is coherent (pair S3); the first time, and on a bridge each time, the device
// must order both sides' stores (pairs S1 and S2). It reports whether to look once more
// after a while, see soonLook.
func (c *Pair) order(w *waiter) (unsure bool) {
	if w.fenced {
		ntb.Fence()
		return false
	}
	c.peer.Order()
	w.fenced = c.peer.Caps().Coherent && !c.fence
	return w.fenced
}

// soonLook is after what time a wait looks once more whose order was a membarrier alone.
// Linux leaves out a processor on which a thread of the publisher's process has ended,
// until another process runs there (internal/litmus has the details). What it has stored
// is visible long before that time.
const soonLook = 10 * time.Millisecond

// lookSoon wakes the wait under way once after soonLook. The caller holds the
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
