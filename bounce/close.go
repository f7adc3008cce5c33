package bounce

import (
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/ring"
)

// SetReadDeadline makes a Read that waits, and later ones, end at t with
// os.ErrDeadlineExceeded. The zero time means never. How long that is from now is found
// once, here: the clock may be set afterwards, and does not count.
func (c *Pair) SetReadDeadline(t time.Time) { c.rw.setLimit(!t.IsZero(), c.pool.opts.until(t)) }

// SetWriteDeadline is SetReadDeadline for Write.
func (c *Pair) SetWriteDeadline(t time.Time) { c.ww.setLimit(!t.IsZero(), c.pool.opts.until(t)) }

// Closed tells that Close or Abort was called.
func (c *Pair) Closed() bool { return c.rw.stop.Load()&stopClosed != 0 }

// CloseWrite ends the direction to the peer: it reads io.EOF after what was
// written. A Write that waits ends with EPIPE.
func (c *Pair) CloseWrite() error {
	if c.Closed() {
		return ErrClosed
	}
	c.ww.interrupt(stopShut)
	if c.leaveTo(leaseWrite) {
		return nil
	}
	c.wmu.Lock()
	defer c.wmu.Unlock()
	if c.Closed() {
		return ErrClosed
	}
	c.sendFIN(true)
	return nil
}

// sendFIN publishes the FIN, once, and wakes the peer's reader if told to. The
// caller holds wmu.
func (c *Pair) sendFIN(wake bool) {
	if c.finSent || c.ww.stop.Load()&(stopDown|stopBroken) != 0 || c.aborted() {
		return
	}
	c.finSent = true
	c.tx.fin()
	if wake {
		c.announce()
	}
	if c.tx.dma != nil {
		c.tx.dma.kick(startClose)
	}
}

// CloseRead ends the direction from the peer: a Read returns io.EOF, and the
// peer's Write EPIPE.
func (c *Pair) CloseRead() error {
	if c.Closed() {
		return ErrClosed
	}
	c.addState(stateReadClosed) // the peer first: whoever sees our Read end may rely on it
	c.rw.interrupt(stopShut)
	return nil
}

// addState tells the peer of the end of something. Nothing is stored any more
// after stateStopped.
func (c *Pair) addState(bits uint32) {
	c.tell.Lock() // not smu: where a device blocks, Stats need that
	defer c.tell.Unlock()
	c.smu.Lock()
	state := c.state | bits
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

// deliverLimit is for how long Close waits for a peer several hops away of which nothing is
// heard.
const deliverLimit = 2 * time.Second

// Close ends both directions. What was written reaches the peer, and then
// io.EOF. It wakes Read and Write, which return ErrClosed. Where frames carry what
// was written, it waits until they have arrived, or nothing was heard of the peer for 2 s.
func (c *Pair) Close() error { return c.end(false) }

// Abort ends the connection; the peer's Read returns ECONNRESET after what has
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
	// Wait for a Read and a Write to leave: they see that we are closed after
	// the piece that they are at. A lease may be out for long; then what is left
	// to do is done at its end.
	writing, reading := c.leaveTo(leaseWrite), c.leaveTo(leaseRead)
	if !writing {
		c.wmu.Lock()
		c.sendFIN(reading) // else what tells of the end follows
		c.wmu.Unlock()
	}
	if !reading {
		passed(&c.rmu)
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

// passed waits until whoever holds mu now has let it go.
func passed(mu sync.Locker) {
	mu.Lock()
	defer mu.Unlock()
}

// stopIfLeft tells the peer that we store nothing any more, when nobody does:
// Close has done its part, and no lease is out.
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
	passed(&c.gmu) // a grow that is under way
	c.addState(stateReadClosed | stateStopped)
	c.tryRemove()
}

// linkDown is called after the link's last word was handled.
func (c *Pair) linkDown() {
	c.rw.interrupt(stopDown)
	c.ww.interrupt(stopDown)
	c.tryRemove()
}

// tryRemove frees our memory when we are closed and the peer has stopped: it
// said so, or it is gone.
func (c *Pair) tryRemove() {
	c.smu.Lock()
	// Our hold on the memory lasts until somebody has claimed the removal here.
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

// blame gives the connection up because the peer broke the protocol.
func (c *Pair) blame(err error) error {
	c.smu.Lock()
	if c.why == nil {
		c.why = fmt.Errorf("peer broke the protocol: %w: %w", err, syscall.ECONNRESET)
	}
	err = c.why
	c.smu.Unlock()
	c.rw.interrupt(stopBroken)
	c.ww.interrupt(stopBroken)
	c.addState(stateReset)
	return err
}

// resetErr is ECONNRESET, with its cause if it was a bad word.
func (c *Pair) resetErr() error {
	c.smu.Lock()
	defer c.smu.Unlock()
	if c.why != nil {
		return c.why
	}
	return syscall.ECONNRESET
}
