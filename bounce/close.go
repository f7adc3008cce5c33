package bounce

import (
	"sync"
	"time"
)

// Closed reports whether Close or Abort was called.
func (c *Pair) Closed() bool { return c.state.closed() }

// CloseWrite ends the direction to the peer, which reads io.EOF after what was
// written. A Write that waits fails with EPIPE. If Close begins meanwhile, as by the owner of that
// Write, it ends the direction, and CloseWrite returns nil.
func (c *Pair) CloseWrite() error {
	if c.Closed() {
		return ErrClosed
	}
	err := c.state.connected()
	c.w.waiter.interrupt(stopShut)
	if c.Closed() {
		return nil
	}
	if err != nil || c.state.leaveTo(leaseWrite) {
		return err
	}
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if c.Closed() {
		return nil
	}
	c.sendFIN(true)
	c.afterShut()
	return nil
}

// CloseRead makes a Read return io.EOF where it would wait. What has arrived, or arrives
// later, can still be read, and the peer's Write goes on while there is room.
func (c *Pair) CloseRead() error {
	if c.Closed() {
		return ErrClosed
	}
	err := c.state.connected()
	c.r.waiter.interrupt(stopShut)
	if c.Closed() {
		return nil
	}
	if err == nil {
		c.afterShut()
	}
	return err
}

// afterShut is called after each end of a direction here. When both directions have ended,
// what the peer writes is useless, and the peer is informed.
func (c *Pair) afterShut() {
	if c.state.hasFinished() && c.r.waiter.stop.Load()&stopShut != 0 {
		c.addState(stateReadClosed)
	}
}

// sendFIN publishes the FIN, once. If alone is true, it wakes the peer's reader, and
// publishes the state. Otherwise something follows that does. The caller holds the
// writer's lock.
func (c *Pair) sendFIN(alone bool) {
	if !c.w.finish(alone) {
		return
	}
	if alone {
		c.addState(stateFinished)
	}
	c.w.tx.dma.flush()
}

// addState informs the peer that something has ended. Nothing is stored any more
// after stateStopped.
func (c *Pair) addState(bits uint32) {
	c.stateWord.Lock() // not state.mu: a device that blocks holds up nothing but this
	defer c.stateWord.Unlock()
	word, changed := c.state.add(bits)
	if !changed {
		return
	}
	c.control.far.Update32(offState, word)
	c.control.notifyWriter()
	if bits&stateStopped != 0 {
		c.state.advance(phaseStopped)
	}
}

// deliverLimit is how long Close waits for a silent peer that is several hops away.
const deliverLimit = 2 * time.Second

// Close ends both directions. What was written reaches the peer, and then
// io.EOF. It wakes Read and Write, which return ErrClosed. Where frames carry what
// was written, it waits until they have arrived, or nothing was heard of the peer for 2 s,
// and for 10 s at the most.
// If something has arrived that was not read, nor lent by Peek, it is Abort.
func (c *Pair) Close() error { return c.end(false) }

// Abort ends the connection. The peer's Read returns ECONNRESET after what has
// arrived, and its Write at once.
func (c *Pair) Abort() error { return c.end(true) }

func (c *Pair) end(abort bool) error {
	if c.state.over.Or(stopClosed)&stopClosed != 0 {
		return ErrClosed
	}
	c.r.waiter.interrupt(stopClosed)
	c.w.waiter.interrupt(stopClosed)
	c.r.waiter.deadline.stop()
	c.w.waiter.deadline.stop()
	if abort {
		c.addState(stateReset)
	}
	// This waits for a Read and a Write to leave. They see that the connection is
	// closed after their current piece. A lease may last long. Then the rest is
	// done at its end.
	writing, reading := c.state.leaveTo(leaseWrite), c.state.leaveTo(leaseRead)
	if !reading && c.r.leave() && !abort && c.state.connected() == nil {
		abort = true
		c.addState(stateReset)
	}
	if !writing {
		c.w.mu.Lock()
		c.sendFIN(reading) // otherwise the state word that follows announces the end
		c.w.save()
		c.w.mu.Unlock()
	}
	if !abort && c.control.frames != nil {
		c.control.frames.Arrived(deliverLimit) // this process may end now
	}
	if reading || writing {
		c.addState(stateReadClosed) // the peer need not wait for the lease
	}
	c.state.advance(phaseClosed)
	c.stopIfLeft()
	return nil
}

// passed waits until the present holder of mu has released it.
func passed(mu sync.Locker) {
	mu.Lock()
	defer mu.Unlock()
}

// afterLease does what Close left to the end of the last lease.
func (c *Pair) afterLease() {
	if c.Closed() {
		c.stopIfLeft()
	}
}

// stopIfLeft informs the peer that we store nothing any more, once that is so: Close
// has done its part, and no lease is out.
func (c *Pair) stopIfLeft() {
	if !c.state.left() {
		return
	}
	c.w.tx.dma.flush()
	c.w.tx.dma.drain()
	passed(&c.r.granter.mu) // waits for a grow that is under way
	c.addState(stateReadClosed | stateStopped)
	c.tryRemove()
}

// interrupt stops both halves. A Write that follows a Read which found the end must
// find it too; a Read that follows such a Write waits at the most until it is woken.
func (c *Pair) interrupt(why uint32) {
	c.state.over.Or(why)
	c.w.waiter.stop.Or(why)
	c.r.waiter.interrupt(why)
	c.w.waiter.notify()
}

// linkDown is called after the link's last word was handled.
func (c *Pair) linkDown() {
	// What the peer stores after the last look does not count: what it stored before that may
	// be missing.
	why := uint32(stopDown)
	if c.control.state()&stateStopped == 0 {
		why |= stopCut
	}
	c.interrupt(why)
	c.callAtEnd()
	c.tryRemove()
}

// blame gives the connection up because the peer violated the protocol.
func (c *Pair) blame(err error) error {
	err = c.state.broken(err)
	c.interrupt(stopBroken)
	c.callAtEnd()
	c.addState(stateReset)
	return err
}

// tryRemove frees our memory when we are closed and the peer has stopped.
func (c *Pair) tryRemove() {
	if c.state.remove() {
		c.pool.remove(c)
	}
}
