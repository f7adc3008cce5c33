package bounce

import (
	"sync"
	"time"
)

// Closed reports whether Close or Abort was called.
func (c *Pair) Closed() bool { return c.rw.stop.Load()&stopClosed != 0 }

// CloseWrite ends the direction to the peer, which reads io.EOF after what was
// written. A Write that waits fails with EPIPE.
func (c *Pair) CloseWrite() error {
	if c.Closed() {
		return ErrClosed
	}
	err := c.connected()
	c.ww.interrupt(stopShut)
	if err != nil || c.leaveTo(leaseWrite) {
		return err
	}
	c.wmu.Lock()
	defer c.wmu.Unlock()
	if c.Closed() {
		return ErrClosed
	}
	c.sendFIN(true)
	c.tellShut()
	return nil
}

// tellShut is called after each end of a direction here. When both directions have ended,
// what the peer writes is useless, and the peer is told so.
func (c *Pair) tellShut() {
	c.smu.Lock()
	both := c.finished && c.rw.stop.Load()&stopShut != 0
	c.smu.Unlock()
	if both {
		c.addState(stateReadClosed)
	}
}

// sendFIN publishes the FIN, once. If tell is true, it wakes the peer's reader and
// tells it the state. Otherwise something follows that does. The caller holds wmu.
func (c *Pair) sendFIN(tell bool) {
	if c.finSent || c.aborted() {
		return
	}
	up := c.ww.stop.Load()&(stopDown|stopBroken) == 0
	if up {
		c.tx.fin()
	}
	c.finSent = true
	c.smu.Lock()
	c.finished = true
	if up {
		c.due = stateFinished
	}
	c.smu.Unlock()
	if !up {
		return
	}
	if tell {
		c.announce()
		c.addState(stateFinished)
	}
	if c.tx.dma != nil {
		c.tx.dma.kick(startClose)
	}
}

// CloseRead makes a Read return io.EOF where it would wait. What has arrived, or arrives
// later, can still be read, and the peer's Write goes on while there is room.
func (c *Pair) CloseRead() error {
	if c.Closed() {
		return ErrClosed
	}
	err := c.connected()
	c.rw.interrupt(stopShut)
	if err == nil {
		c.tellShut()
	}
	return err
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
	if c.rw.stop.Or(stopClosed)&stopClosed != 0 {
		return ErrClosed
	}
	c.rw.notify()
	c.ww.interrupt(stopClosed)
	c.rw.stopTimer()
	c.ww.stopTimer()
	if abort {
		c.addState(stateReset)
	}
	// This waits for a Read and a Write to leave. They see that the connection is
	// closed after their current piece. A lease may last long. Then the rest is
	// done at its end.
	writing, reading := c.leaveTo(leaseWrite), c.leaveTo(leaseRead)
	if !reading && c.unread() && !abort && c.connected() == nil {
		abort = true
		c.addState(stateReset)
	}
	if !writing {
		c.wmu.Lock()
		c.sendFIN(reading) // otherwise what follows tells the peer of the end
		c.wmu.Unlock()
	}
	if !abort {
		c.peer.Deliver(deliverLimit) // this process may end now
	}
	if reading || writing {
		c.addState(stateReadClosed) // the peer need not wait for the lease
	}
	c.smu.Lock()
	c.endDone = true
	c.smu.Unlock()
	c.stopIfLeft()
	return nil
}

// passed waits until the present holder of mu has released it.
func passed(mu sync.Locker) {
	mu.Lock()
	defer mu.Unlock()
}

// endWriteLease ends the write lease, after the FIN that Close or CloseWrite left to it.
// Once no lease is out, the peer may be told that we store nothing any more. The caller
// holds wmu.
func (c *Pair) endWriteLease() {
	for !c.unlease(leaseWrite) {
		c.sendFIN(true)
	}
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
	c.smu.Lock()
	left := c.endDone && c.leases == 0
	c.smu.Unlock()
	if !left {
		return
	}
	if c.tx.dma != nil {
		c.tx.dma.kick(startClose)
		c.tx.dma.drain()
	}
	passed(&c.gmu) // waits for a grow that is under way
	c.addState(stateReadClosed | stateStopped)
	c.tryRemove()
}

// interrupt stops both directions. A Write that follows a Read which found the end must
// find it too; a Read that follows such a Write waits at the most until it is woken.
func (c *Pair) interrupt(why uint32) {
	c.ww.stop.Or(why)
	c.rw.interrupt(why)
	c.ww.notify()
}

// linkDown is called after the link's last word was handled.
func (c *Pair) linkDown() {
	c.interrupt(stopDown)
	c.tellEnd()
	c.tryRemove()
}

// tryRemove frees our memory when we are closed and the peer has stopped: it said
// so, or it is gone.
func (c *Pair) tryRemove() {
	c.smu.Lock()
	// Our hold on the memory lasts until one caller has claimed the removal here.
	free := c.gone && !c.removed && (c.rw.stop.Load()&stopDown != 0 || c.peerState()&stateStopped != 0)
	c.removed = c.removed || free
	c.smu.Unlock()
	if free {
		c.pool.remove(c)
	}
}
