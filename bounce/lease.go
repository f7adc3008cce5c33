package bounce

import (
	"fmt"
)

// A lease lets the application work in the bounce buffers themselves: read in place
// what arrived, or fill the peer's buffer. It holds its direction's lock, so other
// Reads or Writes of this connection wait. Close does not wait for it. The memory
// stays until the lease ends, and so does the rest of Close's work.
const (
	leaseRead = 1 << iota
	leaseWrite
)

// Peek waits for data and returns some of it in place: at most one record, and
// never none without an error. The bytes are valid until Discard, which must
// follow. The peer could change them meanwhile. A caller that must not be deceived
// copies them. Errors are those of Read.
func (c *Pair) Peek() ([]byte, error) {
	c.rmu.Lock()
	b, err := c.peek()
	if err == nil {
		err = c.lease(leaseRead)
	}
	if err != nil {
		c.rmu.Unlock()
		return nil, err
	}
	c.rmu.Lend()
	return b, nil
}

func (c *Pair) peek() ([]byte, error) {
	for {
		end, err := c.beforeRead()
		if err != nil {
			return nil, err
		}
		b, err := c.rx.view()
		if len(b) > 0 {
			return b, nil
		}
		if err := c.nothingRead(end, err); err != nil {
			return nil, err
		}
	}
}

// Discard ends the lease of Peek: its first n bytes count as read. It panics if
// n is more than Peek returned.
func (c *Pair) Discard(n int) {
	if n < 0 || n > c.rx.left {
		panic(fmt.Sprintf("bounce: discard %d of %d bytes", n, c.rx.left))
	}
	if n > 0 {
		c.rx.take(n)
	}
	if !c.Closed() {
		c.returnCredit()
	}
	c.unlease(leaseRead)
	c.rmu.Unlock()
	c.afterLease()
}

// Reserve waits for room at the peer and returns some of it to be filled: at least
// one byte and at most n, which is at least 1. The caller must only write it, since
// reading may be slow or impossible. It is valid until Commit, which must follow.
// Errors are those of Write.
func (c *Pair) Reserve(n int) ([]byte, error) {
	if n < 1 {
		panic(fmt.Sprintf("bounce: reserve %d bytes", n))
	}
	c.wmu.Lock()
	b, err := c.reserve(n)
	if err == nil {
		err = c.lease(leaseWrite)
	}
	if err != nil {
		c.wmu.Unlock()
		return nil, err
	}
	c.wmu.Lend()
	return b, nil
}

func (c *Pair) reserve(n int) ([]byte, error) {
	for {
		if err := c.writeErr(false); err != nil {
			c.leaveTurn()
			return nil, err
		}
		if c.turn != nil && !c.peer.Room(c.turn) {
			c.waitTurn()
			continue
		}
		off, k := c.tx.reserve(n)
		if k == 0 {
			if err := c.makeRoom(); err != nil {
				return nil, err
			}
			continue
		}
		c.reserved = k
		c.leaveTurn() // later data finds room, or is kept aside: one record at most
		if b := c.tx.win.Bytes(off, k); b != nil {
			c.staged = nil
			return b, nil
		}
		// The peer's memory is not mapped here. It is written at Commit.
		if cap(c.staging) < k {
			c.staging = make([]byte, maxPiece)
		}
		c.staged, c.stagedAt = c.staging[:k:k], off
		return c.staged, nil
	}
}

// Commit ends the lease of Reserve, and sends its first n bytes. 0 sends nothing.
// It panics if n is more than Reserve returned.
func (c *Pair) Commit(n int) {
	if n < 0 || n > c.reserved {
		panic(fmt.Sprintf("bounce: commit %d of %d bytes", n, c.reserved))
	}
	if n > 0 && c.ww.stop.Load()&(stopDown|stopBroken) == 0 {
		if c.staged != nil {
			c.tx.win.Write(c.stagedAt, c.staged[:n])
		}
		c.tx.commit(n)
		c.announce()
	}
	c.reserved, c.staged = 0, nil
	c.endWriteLease()
	c.wmu.Unlock()
	c.afterLease()
}

// endWriteLease ends the write lease, after the FIN that Close or CloseWrite left to it.
// Once no lease is out, the peer may be told that we store nothing any more. The caller
// holds wmu.
func (c *Pair) endWriteLease() {
	for !c.unlease(leaseWrite) {
		c.sendFIN(true)
	}
}

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

// afterLease does what Close left to the end of the last lease.
func (c *Pair) afterLease() {
	if c.Closed() {
		c.stopIfLeft()
	}
}
