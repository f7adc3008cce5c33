package bounce

import (
	"fmt"
	"io"

	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ring"
)

// Read reads what has arrived, and waits if nothing has. It returns io.EOF after
// the peer's FIN, and after CloseRead where nothing has arrived. Other errors are
// ErrClosed, os.ErrDeadlineExceeded, and ECONNRESET, see resetErr. If p is empty it
// returns 0 at once.
func (c *Pair) Read(p []byte) (int, error) {
	c.rmu.Lock()
	defer c.rmu.Unlock()
	if len(p) == 0 {
		if c.Closed() {
			return 0, ErrClosed
		}
		return 0, nil
	}
	c.rw.guessFor(len(p))
	for {
		end, err := c.beforeRead()
		if err != nil {
			return 0, err
		}
		n, err := c.rx.get(p)
		if n > 0 {
			c.returnCredit()
			c.rw.worked(n)
			return n, nil
		}
		if err := c.nothingRead(end, err); err != nil {
			return 0, err
		}
	}
}

// ending is why a Read that finds nothing does not wait.
type ending uint8

const (
	goesOn   ending = iota
	isShut          // CloseRead was called; more may arrive
	wasReset        // by the peer or a bad word, or the link is down
)

// beforeRead is called before a check of the queue. It returns an error if the
// queue must not be checked, since the memory may be gone after Close. It also
// returns whether the connection has ended, so that what arrived before the end is
// read first.
func (c *Pair) beforeRead() (ending, error) {
	stop := c.rw.stop.Load()
	if stop != 0 {
		if err := stopErr(stop); err != nil {
			return goesOn, err
		}
	}
	switch {
	case c.ended(ring.Data) || stop&(stopDown|stopBroken) != 0:
		return wasReset, nil
	case stop != 0:
		return isShut, nil
	}
	return goesOn, nil
}

// nothingRead is called after a check of the queue that found no data. It returns
// the error of the end, or waits.
func (c *Pair) nothingRead(end ending, err error) error {
	switch {
	case err == io.EOF:
		return err
	case err != nil:
		return c.blame(err)
	case end == wasReset:
		return c.resetErr(io.EOF)
	case end == isShut:
		return io.EOF
	}
	c.wait(&c.rw, ring.Data)
	return nil
}

// Look calls f with what lies next in the queue, in place, or with nothing if nothing has
// arrived, and with whether the stream ends there. f returns how much of it counts as read,
// and whether it is done. If f is not done, Look calls it again: when more has arrived, if
// there was nothing. If f takes nothing of what there is, Look waits only for Close and the
// deadline. Other Reads wait meanwhile, and so does Close while f runs. The errors are
// ErrClosed, os.ErrDeadlineExceeded, and those of f.
func (c *Pair) Look(f func(next []byte, ended bool) (taken int, done bool, err error)) error {
	c.rmu.Lock()
	defer c.rmu.Unlock()
	c.rw.guessFor(1)
	for {
		end, err := c.beforeRead()
		if err != nil {
			return err
		}
		next, bad := c.rx.view()
		ended := len(next) == 0 && (bad != nil || end != goesOn)
		taken, done, err := f(next, ended)
		if taken > 0 {
			c.rx.take(taken)
			c.returnCredit()
		}
		switch {
		case err != nil || done:
			return err
		case ended || len(next) > 0 && taken == 0:
			for stopErr(c.rw.stop.Load()) == nil {
				<-c.rw.wake
			}
		case taken == 0:
			c.wait(&c.rw, ring.Data)
		}
	}
}

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

// unread waits until a Read under way has left, and reports whether data has arrived that
// was not read.
func (c *Pair) unread() bool {
	c.rmu.Lock()
	defer c.rmu.Unlock()
	return c.rx.unread()
}

// idleRead takes a move if no Read is under way and the move is next.
func (c *Pair) idleRead() {
	if !c.rmu.TryLock() {
		return // the Read that is under way takes it
	}
	defer c.rmu.Unlock()
	if c.rw.stop.Load()&(stopClosed|stopBroken) == 0 {
		c.rx.takeMoves()
	}
}

// bytesRead returns how much was read, if no Read is under way.
func (c *Pair) bytesRead() (n uint64, known bool) {
	if c.rmu.TryLock() {
		defer c.rmu.Unlock()
		return c.rx.st.bytes, true
	}
	c.smu.Lock()
	defer c.smu.Unlock()
	return c.stats.BytesRead, c.rw.parked.Load() // saved before it parked
}

// returnCredit is called after a read. It tells the peer how far we are when that
// is worth it, and at once if the peer's writer has announced that it is about to
// sleep.
func (c *Pair) returnCredit() {
	if c.rx.recv.Due() || armed(ntb.Load32(c.line, offSpaceArm), c.spaceSeen) {
		c.publishCredit()
	}
}

// publishCredit pairs with wait as announce does (pair S2). Where nothing is owed, the peer's
// arm stays for when something is.
func (c *Pair) publishCredit() {
	if c.rx.recv.Owed() == 0 {
		return
	}
	credit := uint64(c.rx.gen)<<32 | uint64(c.rx.recv.Return())
	if c.routed {
		// The credit itself wakes the peer. It answers the arm of before. A writer
		// that arms later may have used it already, and want more.
		c.spaceSeen = ntb.Load32(c.line, offSpaceArm)
		c.far.Update64(offCredit, credit)
		return
	}
	c.far.Update64(offCredit, credit)
	if arm := c.peerArm(offSpaceArm, c.spaceSeen); armed(arm, c.spaceSeen) {
		c.spaceSeen = arm
		c.peer.Notify(c.farSlot, ring.Space)
	}
}
