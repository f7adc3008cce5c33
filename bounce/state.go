package bounce

import (
	"fmt"
	"os"
	"syscall"

	"github.com/ntbnet/ntbnet/ring"
)

// Bits of a line's state word. They are only ever added.
const (
	stateReadClosed = 1 << iota // the peer reads no more
	stateReset                  // the peer gave the connection up
	stateStopped                // the peer stores nothing here any more
	stateFinished               // the peer's FIN is published
)

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

func (c *Pair) aborted() bool {
	c.smu.Lock()
	defer c.smu.Unlock()
	return c.state&stateReset != 0
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

// A lease lets the application work in the bounce buffers themselves: read in place
// what arrived, or fill the peer's buffer. It holds its direction's lock, so other
// Reads or Writes of this connection wait. Close does not wait for it. The memory
// stays until the lease ends, and so does the rest of Close's work.
const (
	leaseRead = 1 << iota
	leaseWrite
)

// lease marks a lease as out, unless the connection was closed meanwhile.
func (c *Pair) lease(which uint8) error {
	c.smu.Lock()
	defer c.smu.Unlock()
	if c.Closed() {
		return ErrClosed
	}
	c.leases |= which
	return nil
}

// unlease marks a lease as ended. It returns false and does nothing if it is the write
// lease and a FIN is due that the caller did not know of, and must send first.
func (c *Pair) unlease(which uint8) bool {
	c.smu.Lock()
	defer c.smu.Unlock()
	if which == leaseWrite && c.finDue {
		c.finDue = false
		return false
	}
	c.leases &^= which
	return true
}

// leaveTo leaves the rest of the work in a direction to the end of its lease, if
// one is out, and reports whether one is. No new lease begins after Close was
// marked.
func (c *Pair) leaveTo(which uint8) bool {
	c.smu.Lock()
	defer c.smu.Unlock()
	if c.leases&which == 0 {
		return false
	}
	c.finDue = c.finDue || which == leaseWrite
	return true
}
