package bounce

import (
	"fmt"
	"syscall"

	"github.com/ntbnet/ntbnet/flowctl"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ring"
)

// socketRoom is how much a socket takes of what is written, whether or not the peer reads.
// It is less than any socket's buffers.
const socketRoom = 64 << 10

// Write writes all of p. Its errors are EPIPE when either side ended this direction,
// ErrClosed, os.ErrDeadlineExceeded, and ECONNRESET, see resetErr. With an error it
// returns the number of bytes that were written before. If the peer ends the connection
// meanwhile, up to 64 KiB count as written all the same, as with a socket. The end is
// then the error of the next call.
func (c *Pair) Write(p []byte) (n int, err error) {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	for begun := false; ; begun = true {
		if begun && len(p) <= socketRoom && c.peerEnded() {
			c.leaveTurn()
			return len(p), nil
		}
		if err := c.writeErr(len(p) == 0); err != nil || n == len(p) {
			if err != nil {
				c.leaveTurn()
			}
			return n, err
		}
		k, waits := c.put(p[n:])
		if waits {
			c.waitTurn()
			continue
		}
		if k == 0 {
			if err := c.makeRoom(); err != nil {
				return n, err
			}
			continue
		}
		n += k
		c.announce()
		c.ww.worked(k)
		if n == len(p) {
			return n, nil
		}
	}
}

// makeRoom applies the credit that has come, or waits for some.
func (c *Pair) makeRoom() error {
	c.leaveTurn() // data of others need not wait for our credit
	progress, err := c.takeCredit()
	if err != nil {
		return c.blame(err)
	}
	if !progress {
		c.tx.stalled()
		c.wait(&c.ww, ring.Space)
	}
	return nil
}

// writeErr returns why nothing can be written, or nil. none says that there is nothing to
// write. As with TCP, a write to a peer that reads no more resets the connection. The
// caller holds wmu.
func (c *Pair) writeErr(none bool) error {
	stop := c.ww.stop.Load()
	if err := stopErr(stop); err != nil {
		return err // without a look: the memory may be gone
	}
	state := c.peerState()
	switch {
	case stop == 0 && !takesNothing(state):
		return nil
	case state&stateReset != 0 || lost(stop, state):
		return c.resetErr(syscall.EPIPE)
	case stop&stopShut != 0 || c.aborted():
		return syscall.EPIPE
	case none:
		return nil
	}
	c.addState(stateReset)
	return syscall.EPIPE
}

// peerEnded reports whether the peer, and nothing else, ended the connection or gave it
// up.
func (c *Pair) peerEnded() bool {
	stop := c.ww.stop.Load()
	if stopErr(stop) != nil {
		return false // without a look: the memory may be gone
	}
	state := c.peerState()
	return takesNothing(state) && stop&stopShut == 0 && !lost(stop, state) && !c.aborted()
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

// Where frames lead to the peer, they sometimes take no data, because as much is under way
// as may be, or data of other connections waits too. Write asks for room first, and waits
// for its turn here, as it waits for credit. So its deadline, Close and the peer's end
// count. Everything that is not data never waits.

// put writes the first bytes of p as one record and returns how many. If it returns 0,
// there is no room in the queue, or, if waits is true, the frames take none and the turn
// is waited for. The caller holds wmu.
func (c *Pair) put(p []byte) (n int, waits bool) {
	if c.turn == nil {
		return c.tx.put(p), false
	}
	off, n := c.tx.reserve(len(p))
	if n == 0 {
		return 0, false
	}
	if n = c.peer.TryWrite(&c.tx.win, off, p[:n], c.turn); n == 0 {
		return 0, true
	}
	c.tx.commit(n)
	return n, false
}

// waitTurn waits until frames take data, or there is a reason to stop. The caller holds
// wmu, and checks again.
func (c *Pair) waitTurn() {
	w := &c.ww
	w.parked.Store(true)
	defer w.parked.Store(false)
	for !c.peer.Room(c.turn) && w.stop.Load() == 0 && !c.ended(ring.Space) {
		c.peer.Poll()
		w.counts.parks++
		c.saveStats(ring.Space)
		<-w.wake
	}
}

// leaveTurn gives up the place in line that an earlier call may have left. The caller
// holds wmu.
func (c *Pair) leaveTurn() {
	if c.turn != nil {
		c.peer.Leave(c.turn)
	}
}

// takeCredit reads the words by which the peer gives room: credit for the queue,
// and a new queue. It reports whether either has changed.
func (c *Pair) takeCredit() (progress bool, err error) {
	if n := int(c.writeLimit.Load()); n != c.tx.max {
		c.tx.limit(n)
	}
	// Each word is loaded once, so that the compared value is the one that is used.
	credit, grant := ntb.Load64(c.line, offCredit), ntb.Load64(c.line, offGrant)
	progress = credit != c.creditSeen || grant != c.grantSeen
	c.creditSeen, c.grantSeen = credit, grant
	// Credit for a queue that was left is late, not wrong.
	if uint32(c.creditSeen>>32) == c.tx.gen && !c.tx.send.Credit(flowctl.Pos(c.creditSeen)) {
		return false, fmt.Errorf("%w: credit %#x", errBadRecord, c.creditSeen)
	}
	if gen := uint32(c.grantSeen >> 40); gen == (c.tx.gen+1)&0xffffff {
		win, err := c.remoteQueue(c.grantSeen&0xffffffff*minQueue, 1<<(c.grantSeen>>32&0x3f))
		if err != nil {
			return false, err
		}
		c.tx.move(win)
		c.announce()
	}
	return progress, nil
}

// idleMove goes on in the queue that was granted, if no Write is under way, and
// tells the peer, whose application may be idle as well.
func (c *Pair) idleMove() {
	if ntb.Load64(c.line, offGrant) == 0 || !c.wmu.TryLock() {
		return // never granted, or a Write that is under way takes the grant
	}
	defer c.wmu.Unlock()
	if ntb.Load64(c.line, offGrant) == c.grantSeen || c.ww.stop.Load()&^stopDeadline != 0 || c.finSent {
		return
	}
	if _, err := c.takeCredit(); err != nil {
		c.blame(err)
		return
	}
	c.peer.Notify(c.farSlot, ring.Data)
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
