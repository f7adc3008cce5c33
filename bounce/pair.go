package bounce

import (
	"math/bits"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/lock"
)

// Pair is one endpoint of a connection. Its methods may be called from several
// goroutines at the same time. Reads exclude each other, and so do writes.
type Pair struct {
	// Immutable after Pool.NewPair.
	pool  *Pool
	gen   uint32 // of the slot
	quota *Quota // where the connection counts; nil for nowhere; constant after Pool.Accept

	control control
	state   state
	r       reader
	w       writer

	linked    atomic.Bool                // Connect is done, so notifications count (pair S16)
	atEnd     atomic.Pointer[func()]     // see OnEnd; stored before a look at the end, which callAtEnd follows
	stateWord lock.Mutex[lock.StateWord] // held while our state word is published to the peer
}

func newPair(p *Pool, q queue) *Pair {
	c := &Pair{pool: p}
	c.control.peer, c.control.fence, c.control.frames = p.peer, p.peer.Caps().FenceToLook, p.peer.Frames()
	c.state.control = &c.control
	c.r.init(&c.control, &c.state, p, q)
	c.w.init(&c.control, &c.state, &p.opts)
	return c
}

// Endpoint returns what the peer needs to know of this endpoint.
func (c *Pair) Endpoint() Endpoint {
	return Endpoint{Slot: uint32(c.control.slot), Gen: c.gen, Offset: uint64(c.r.rx.queue.off), Size: uint32(len(c.r.rx.mem))}
}

// Peer returns the peer at the other end.
func (c *Pair) Peer() *link.Peer { return c.control.peer }

// SetReadBuffer sets how large the queue that we read may grow: n bytes, rounded up
// to a power of two from 4 KiB to 16 MiB. A queue that is larger already stays.
func (c *Pair) SetReadBuffer(n int) { c.r.granter.limit.Store(int64(bufferSize(n))) }

// SetWriteBuffer sets how much may be written that the peer has not read: n bytes,
// rounded as for SetReadBuffer. It takes effect the next time that a Write has to
// wait.
func (c *Pair) SetWriteBuffer(n int) { c.w.limit.Store(int64(bufferSize(n))) }

// minBuffer is the smallest limit that can be set.
const minBuffer = 4 << 10

func bufferSize(n int) int {
	n = max(minBuffer, min(n, maxQueue))
	return 1 << bits.Len(uint(n-1))
}

// SetReadDeadline makes a Read that waits, and later ones, fail at t with
// os.ErrDeadlineExceeded. The zero time means never. The remaining time is computed
// once, in this call. So a later change of the clock does not matter.
func (c *Pair) SetReadDeadline(t time.Time) {
	c.r.waiter.deadline.limit(!t.IsZero(), c.pool.opts.until(t))
}

// SetWriteDeadline is SetReadDeadline for Write.
func (c *Pair) SetWriteDeadline(t time.Time) {
	c.w.waiter.deadline.limit(!t.IsZero(), c.pool.opts.until(t))
}

// Connect completes a pair with the other side's endpoint. It refuses an endpoint
// that would have us store where no connection's memory can be.
func (c *Pair) Connect(far Endpoint) error {
	win, err := c.control.connect(far)
	if err != nil {
		return err
	}
	// No half's lock is held: nothing reads or writes yet, and the caller may be in a wait
	// of another connection.
	c.r.dma = c.pool.crossover.engine(c.pool.peer, c.gen, &c.w.bell)
	c.w.tx.init(win, int(c.w.limit.Load()), c.r.dma)
	c.linked.Store(true)
	// Earlier announcements of the peer were ignored (pair S16).
	c.Notified(link.Space)
	c.Notified(link.Data)
	return nil
}

// Read reads what has arrived, and waits if nothing has. What has arrived of a Write of up to
// 64 KiB it completes, if p has room and the writer does not stop for a millisecond. It returns io.EOF after
// the peer's FIN, and after CloseRead where nothing has arrived. Other errors are
// ErrClosed, os.ErrDeadlineExceeded, and ECONNRESET, see state.resetErr. If p is empty it
// returns 0 at once.
func (c *Pair) Read(p []byte) (int, error) {
	n, err := c.r.read(p)
	return n, c.failed(err)
}

// Look calls f with what lies next in the queue, as Peek returns it, or with nothing if nothing has
// arrived, and with whether the stream ends there. f returns how much of it counts as read,
// and whether it is done. If f is not done, Look calls it again: when more has arrived, if
// there was nothing. If f takes nothing of what there is, Look waits only for Close and the
// deadline. Other Reads wait meanwhile, and so does Close while f runs. The errors are
// ErrClosed, os.ErrDeadlineExceeded, and those of f.
func (c *Pair) Look(f func(next []byte, ended bool) (taken int, done bool, err error)) error {
	return c.r.look(f)
}

// Write writes all of p. Its errors are EPIPE when either side ended this direction,
// ErrClosed, os.ErrDeadlineExceeded, and ECONNRESET, see state.resetErr. With an error it
// returns the number of bytes that were written before. If the peer has ended the connection,
// or ends it meanwhile, up to 64 KiB count as written all the same, as with a socket, and are
// lost. The end is then the error of the next call.
func (c *Pair) Write(p []byte) (int, error) {
	n, err := c.w.write(p)
	return n, c.failed(err)
}

// HoldWrites has other writes wait until ReleaseWrites, which must follow. WriteHeld may be
// called in between. Close does not wait, and is the reason for an error, ErrClosed.
func (c *Pair) HoldWrites() error { return c.w.hold() }

// WriteHeld is Write between HoldWrites and ReleaseWrites.
func (c *Pair) WriteHeld(p []byte) (int, error) {
	n, err := c.w.writeHeld(p, true)
	return n, c.failed(err)
}

// ReleaseWrites ends what HoldWrites began.
func (c *Pair) ReleaseWrites() { c.Commit(0) }

// WasReset reports whether the peer has reset the connection, or the link is down, whatever is left to be read.
func (c *Pair) WasReset() bool { return c.state.wasReset() }

// Peek waits for data and returns some of it: at most one record, and never none without an
// error. The bytes are valid until Discard, which must follow. They are in place, so the peer
// could change them meanwhile, unless it may be of another user ([ntb.Caps].Untrusted): then
// they are a copy, of at most 64 KiB, and what is not discarded stays the same. Errors are
// those of Read.
func (c *Pair) Peek() ([]byte, error) {
	b, err := c.r.peek()
	return b, c.failed(err)
}

// More reports whether the Write of what Peek returned goes on behind it. It is called while
// Peek's lease is out.
func (c *Pair) More() bool { return c.r.rx.within }

// Discard ends the lease of Peek: its first n bytes count as read. It panics if
// n is more than Peek returned.
func (c *Pair) Discard(n int) {
	c.r.discard(n)
	c.afterLease()
}

// Reserve waits for room at the peer and returns some of it to be filled: at least
// one byte and at most n, which is at least 1. The caller must only write it, since
// reading may be slow or impossible. It is valid until Commit, which must follow.
// Errors are those of Write. Where a Write would be lost, memory is lent that goes nowhere.
func (c *Pair) Reserve(n int) ([]byte, error) {
	b, err := c.w.reserve(n)
	return b, c.failed(err)
}

// Commit ends the lease of Reserve, and sends its first n bytes. 0 sends nothing.
// It panics if n is more than Reserve returned.
func (c *Pair) Commit(n int) {
	_ = c.failed(c.w.commit(n)) // the next call returns an error
	// Close or CloseWrite may have left the FIN to the end of the lease. Once no lease is
	// out, the peer may learn that we store nothing any more.
	for !c.state.unlease(leaseWrite) {
		c.sendFIN(true)
		c.afterShut()
	}
	if c.Closed() {
		c.w.save() // Close left that to the lease
	}
	c.w.mu.Unlock()
	c.afterLease()
}

// failed does what an error of a half asks for, if there is one, and returns the error of the call.
func (c *Pair) failed(err error) error {
	if err == nil {
		return nil
	}
	return c.fail(err)
}

func (c *Pair) fail(err error) error {
	if v, ok := err.(violation); ok {
		return c.blame(v.error)
	}
	switch err {
	case errUnread:
		c.addState(stateReset)
		return syscall.EPIPE
	case errTaken:
		c.addState(stateReset)
		return nil
	}
	return err
}

// Notified is called by the link when the peer has announced e to this pair. Its looks at
// linked and parked come after the peer's stores (pairs S13 and S16).
func (c *Pair) Notified(e link.Event) {
	if !c.linked.Load() {
		return
	}
	if state := c.control.state(); state != 0 || e == link.Space {
		if c.w.waiter.parked.Load() {
			c.w.waiter.notify()
		}
		if state != 0 {
			c.callAtEnd()
			c.tryRemove()
		}
	}
	if c.r.waiter.parked.Load() {
		c.r.waiter.notify()
	}
	if e == link.Data {
		c.r.takeMoves()
		c.r.granter.grow()
	} else {
		_ = c.failed(c.w.move())
	}
}

// shrink has the peer go on in a small queue if nothing is read. It reports whether to
// check again.
func (c *Pair) shrink() bool { return c.linked.Load() && c.r.shrink() }

// OnEnd sets a function that is called when the peer's direction ends: by its FIN, a
// reset, or a link that is down. It may be called more than once. If the direction has
// ended, it is called at once, otherwise as [link.Notified] is: f must not wait.
func (c *Pair) OnEnd(f func()) {
	c.atEnd.Store(&f)
	if c.state.peerEnded() {
		f()
	}
}

// callAtEnd calls the function that OnEnd has set.
func (c *Pair) callAtEnd() {
	if f := c.atEnd.Load(); f != nil {
		(*f)()
	}
}
