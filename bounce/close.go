package bounce

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/ring"
)

// SetReadDeadline makes a Read that waits, and later ones, fail at t with
// os.ErrDeadlineExceeded. The zero time means never. The remaining time is computed
// once, in this call. So a later change of the clock does not matter.
func (c *Pair) SetReadDeadline(t time.Time) { c.rw.setLimit(!t.IsZero(), c.pool.opts.until(t)) }

// SetWriteDeadline is SetReadDeadline for Write.
func (c *Pair) SetWriteDeadline(t time.Time) { c.ww.setLimit(!t.IsZero(), c.pool.opts.until(t)) }

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

// connected is ENOTCONN when both directions have ended, or the connection was reset: what
// a socket returns from shutdown then.
func (c *Pair) connected() error {
	c.smu.Lock()
	defer c.smu.Unlock()
	if c.removed {
		return ErrClosed
	}
	state := c.peerState()
	if (c.state|state)&stateReset != 0 || c.finished && state&stateFinished != 0 || lost(c.ww.stop.Load(), state) {
		return os.NewSyscallError("shutdown", syscall.ENOTCONN)
	}
	return nil
}

// lost reports whether a connection ended without a word of the peer: a bad word was
// found, or the link went down before the peer was done with the connection.
func lost(stop, state uint32) bool {
	return stop&stopBroken != 0 || stop&stopDown != 0 && state&stateStopped == 0
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

// addState informs the peer that something has ended. Nothing is stored any more
// after stateStopped.
func (c *Pair) addState(bits uint32) {
	c.tell.Lock() // not smu: where a device blocks, Stats need that
	defer c.tell.Unlock()
	c.smu.Lock()
	state := c.state | c.due | bits
	if c.gone || state == c.state {
		c.smu.Unlock()
		return
	}
	c.state = state
	c.smu.Unlock()
	c.far.Update32(offState, state)
	c.peer.Notify(c.farSlot, ring.Space)
	if bits&stateStopped != 0 {
		c.smu.Lock()
		c.gone = true
		c.smu.Unlock()
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

// unread waits until a Read under way has left, and reports whether data has arrived that
// was not read.
func (c *Pair) unread() bool {
	c.rmu.Lock()
	defer c.rmu.Unlock()
	return c.rx.unread()
}

// passed waits until the present holder of mu has released it.
func passed(mu sync.Locker) {
	mu.Lock()
	defer mu.Unlock()
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

func (c *Pair) aborted() bool {
	c.smu.Lock()
	defer c.smu.Unlock()
	return c.state&stateReset != 0
}

// blame gives the connection up because the peer violated the protocol.
func (c *Pair) blame(err error) error {
	c.smu.Lock()
	if c.why == nil {
		c.why = fmt.Errorf("peer broke the protocol: %w: %w", err, syscall.ECONNRESET)
	}
	err = c.why
	c.smu.Unlock()
	c.interrupt(stopBroken)
	c.tellEnd()
	c.addState(stateReset)
	return err
}

// resetErr returns the error of a Read or Write after a reset. Write passes EPIPE as end.
//
// If a bad word of the peer was the reason, or the end of the link, the error stays the
// same, since it is unknown what is missing. A reset by the peer is like that of a socket:
// the first call returns ECONNRESET, and later ones what the end of a direction returns,
// io.EOF or EPIPE. A Write gets only EPIPE if the peer's FIN came before its reset. The
// caller holds a direction's lock.
func (c *Pair) resetErr(end error) error {
	c.smu.Lock()
	defer c.smu.Unlock()
	state := c.peerState()
	switch {
	case c.why != nil:
		return c.why
	case lost(c.ww.stop.Load(), state): // before rw's
	case c.resetTold, end == syscall.EPIPE && state&stateFinished != 0:
		return end
	}
	c.resetTold = true
	return syscall.ECONNRESET
}
