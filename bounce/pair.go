package bounce

import (
	"fmt"
	"io"
	"math/bits"
	"sync/atomic"
	"syscall"

	"github.com/ntbnet/ntbnet/flowctl"
	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ring"
)

// Words of a line. See the package comment.
const (
	offCredit   = 0
	offGrant    = 8
	offDataArm  = 16
	offSpaceArm = 20
	offState    = 24
)

// Bits of a line's state word. They are only ever added.
const (
	stateReadClosed = 1 << iota // the peer reads no more
	stateReset                  // the peer gave the connection up
	stateStopped                // the peer stores nothing here any more
	stateFinished               // the peer's FIN is published
)

// Pair is one endpoint of a connection. Its methods may be called from several
// goroutines at the same time. Reads exclude each other, and so do writes.
type Pair struct {
	// Immutable.
	pool   *Pool
	peer   *ring.Peer
	slot   int    // of our line
	gen    uint32 // of the slot
	line   []byte // our line, written by the peer
	fence  bool   // a look needs a fence after a publish
	routed bool   // frames lead to the peer

	// Constant after Connect.
	far     ntb.Window // our line at the peer, written by us
	farSlot int

	linked atomic.Bool            // Connect is done, so notifications count (pair S16)
	atEnd  atomic.Pointer[func()] // see OnEnd; stored before a look at the end, which tellEnd follows

	rmu        lock.Mutex[lock.Read] // held by Read, also while it waits
	rx         rx                    // guarded by rmu
	dataArm    uint32                // last word published when about to sleep; guarded by rmu
	spaceSeen  uint32                // the peer's space arm that was answered; guarded by rmu
	rw         waiter
	readBuffer atomic.Int64 // how large rx may grow, in bytes

	wmu        lock.Mutex[lock.Write] // held by Write, also while it waits
	tx         tx                     // guarded by wmu
	turn       *ring.Turn             // nil unless the peer is routed; immutable; used with wmu held
	spaceArm   uint32                 // counts the arms; guarded by wmu
	askedIn    uint32                 // generation of the queue for which askToGrow asked; guarded by wmu
	dataSeen   atomic.Uint32          // the peer's data arm that was answered
	creditSeen uint64                 // guarded by wmu
	grantSeen  uint64                 // guarded by wmu
	finSent    bool                   // guarded by wmu
	// The lease of Reserve; guarded by wmu.
	reserved   int
	staging    []byte // filled instead of the peer's memory, where that is not mapped
	staged     []byte
	stagedAt   int
	doorbells  atomic.Uint64 // rung for the peer's reader
	ww         waiter
	writeLimit atomic.Int64 // the new value for tx.max

	gmu       lock.Mutex[lock.Grow] // held by grow
	grantGen  uint32                // generation of the queue granted last; guarded by gmu
	rxSize    int                   // size of the queue granted last; guarded by gmu
	readThen  uint64                // what was read when shrink last checked; guarded by gmu
	growAsked uint32                // last space arm of the peer that grow has seen; guarded by gmu

	tell  lock.Mutex[lock.Tell] // held while a state is told to the peer
	smu   lock.Mutex[lock.State]
	state uint32 // our state word at the peer; guarded by smu
	why   error  // what was wrong with a bad word of the peer; guarded by smu
	stats Stats  // as of the last wait; guarded by smu
	gone  bool   // we store nothing any more; guarded by smu
	// The end of the directions; guarded by smu.
	due       uint32 // bits that the next change of the state adds
	finished  bool   // nothing is written any more, and the FIN was published while that was possible
	resetTold bool   // ECONNRESET was returned
	// Leases that are out, and what Close or CloseWrite left to their end;
	// guarded by smu.
	leases  uint8
	finDue  bool
	endDone bool
	removed bool // pool.remove was called; guarded by smu
}

func newPair(p *Pool, q queue) *Pair {
	c := &Pair{pool: p, peer: p.peer, fence: p.peer.FenceToLook(), routed: p.peer.Routed()}
	c.rw.init()
	c.ww.init()
	if c.routed {
		c.rw.watch.Wake, c.ww.watch.Wake = c.rw.notify, c.ww.notify
		c.turn = &ring.Turn{Wake: c.ww.notify}
	}
	c.rx.free = p.release
	c.rx.start(q)
	c.grantGen, c.rxSize = c.rx.gen, len(q.mem)
	c.readBuffer.Store(int64(p.opts.Buffer))
	c.writeLimit.Store(int64(p.opts.Buffer))
	return c
}

// End returns what the peer needs to know of this endpoint.
func (c *Pair) End() End {
	return End{Slot: uint32(c.slot), Gen: c.gen, Offset: uint64(c.rx.queue.off), Size: uint32(len(c.rx.mem))}
}

// SetReadBuffer sets how large the queue that we read may grow: n bytes, rounded up
// to a power of two from 4 KiB to 16 MiB. A queue that is larger already stays.
func (c *Pair) SetReadBuffer(n int) { c.readBuffer.Store(int64(bufferSize(n))) }

// SetWriteBuffer sets how much may be written that the peer has not read: n bytes,
// rounded as for SetReadBuffer. It takes effect the next time that a Write has to
// wait.
func (c *Pair) SetWriteBuffer(n int) { c.writeLimit.Store(int64(bufferSize(n))) }

// minBuffer is the smallest limit that can be set.
const minBuffer = 4 << 10

func bufferSize(n int) int {
	n = max(minBuffer, min(n, maxQueue))
	return 1 << bits.Len(uint(n-1))
}

// Peer returns the peer at the other end.
func (c *Pair) Peer() *ring.Peer { return c.peer }

// Connect completes a pair with the other side's endpoint. It refuses an endpoint
// that would have us store where no connection's memory can be.
func (c *Pair) Connect(far End) error {
	remote := c.peer.Remote()
	if int64(far.Slot) >= int64(c.peer.RemoteSlots()) {
		return fmt.Errorf("%w: slot %d of %d", ErrBadGrant, far.Slot, c.peer.RemoteSlots())
	}
	win, err := c.remoteQueue(far.Offset, uint64(far.Size))
	if err != nil {
		return err
	}
	c.far = remote.Slice(line*int(far.Slot), line)
	c.farSlot = int(far.Slot)
	// wmu is not held: nothing writes yet, and the caller may be in a wait of another
	// connection.
	var dma *dmaTx
	if ch := c.pool.channel(c.gen); ch != nil {
		dma = newDMA(ch, c.pool.dmaThreshold, c.announce)
	}
	c.tx.init(win, int(c.writeLimit.Load()), dma)
	c.linked.Store(true)
	// Earlier announcements of the peer were ignored (pair S16).
	c.Notified(ring.Space)
	c.Notified(ring.Data)
	return nil
}

// remoteQueue checks a queue that the peer named.
func (c *Pair) remoteQueue(off, size uint64) (ntb.Window, error) {
	remote := c.peer.Remote()
	n := uint64(remote.Len())
	if size < minQueue || size > maxQueue || bits.OnesCount64(size) != 1 ||
		off%minQueue != 0 || off > n || size > n-off || off < uint64(line*c.peer.RemoteSlots()) {
		return ntb.Window{}, fmt.Errorf("%w: queue of %d bytes at %d of %d", ErrBadGrant, size, off, n)
	}
	return remote.Slice(int(off), int(size)), nil
}

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

func (c *Pair) peerState() uint32 { return ntb.Load32(c.line, offState) }

// takesNothing reports whether a peer with that state takes nothing more.
func takesNothing(state uint32) bool { return state&^stateFinished != 0 }

// ended reports whether the peer does nothing more in a direction: it gave up, or it
// reads no more.
func (c *Pair) ended(direction int) bool {
	if direction == ring.Data {
		return c.peerState()&stateReset != 0
	}
	return takesNothing(c.peerState())
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

// changed reports whether there is something for a waiter in a direction. The
// caller holds its lock.
func (c *Pair) changed(direction int) bool {
	if direction == ring.Data {
		return c.rx.ready()
	}
	return ntb.Load64(c.line, offCredit) != c.creditSeen || ntb.Load64(c.line, offGrant) != c.grantSeen
}

// Notified is called by the link when the peer has notified this pair. Its looks at
// linked and parked come after the peer's stores (pairs S13 and S16).
func (c *Pair) Notified(direction int) {
	if !c.linked.Load() {
		return
	}
	if state := c.peerState(); state != 0 || direction == ring.Space {
		if c.ww.parked.Load() {
			c.ww.notify()
		}
		if state != 0 {
			c.tellEnd()
			c.tryRemove()
		}
	}
	if c.rw.parked.Load() {
		c.rw.notify()
	}
	if direction == ring.Data {
		c.idleRead()
		c.grow()
	} else {
		c.idleMove()
	}
}
