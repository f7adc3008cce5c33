package bounce

import (
	"fmt"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ring"
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

// Peer returns the peer at the other end.
func (c *Pair) Peer() *ring.Peer { return c.peer }

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

// SetReadDeadline makes a Read that waits, and later ones, fail at t with
// os.ErrDeadlineExceeded. The zero time means never. The remaining time is computed
// once, in this call. So a later change of the clock does not matter.
func (c *Pair) SetReadDeadline(t time.Time) { c.rw.setLimit(!t.IsZero(), c.pool.opts.until(t)) }

// SetWriteDeadline is SetReadDeadline for Write.
func (c *Pair) SetWriteDeadline(t time.Time) { c.ww.setLimit(!t.IsZero(), c.pool.opts.until(t)) }

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

// OnEnd sets a function that is called when the peer's direction ends: by its FIN, a
// reset, or the end of the link. It may be called more than once. If the direction has
// ended, it is called at once. The link's goroutine calls it, so f must not wait.
func (c *Pair) OnEnd(f func()) {
	c.atEnd.Store(&f)
	c.smu.Lock()
	ended := c.removed || c.peerState() != 0 || c.rw.stop.Load()&(stopDown|stopBroken) != 0
	c.smu.Unlock()
	if ended {
		f()
	}
}

// tellEnd calls the function that OnEnd has set.
func (c *Pair) tellEnd() {
	if f := c.atEnd.Load(); f != nil {
		(*f)()
	}
}
