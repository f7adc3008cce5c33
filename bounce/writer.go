package bounce

import (
	"fmt"
	"sync/atomic"
	"syscall"

	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/internal/wait"
	"github.com/ntbnet/ntbnet/ntb"
)

// writer is the half of a connection that writes: the queue in the peer's memory.
type writer struct {
	// Immutable.
	control *control
	state   *state
	turn    *link.Turn // nil unless frames lead to the peer; used with mu held

	limit atomic.Int64 // the new value for tx.max
	bell  bell

	mu callLock[lock.Write] // held by a call, also while it waits
	// mu guards the following.
	tx         sender
	arms       uint32 // counts the arms
	askedIn    uint32 // generation of the queue for which a larger one was asked for; 0 to ask again
	creditSeen uint64
	grantSeen  uint64
	finSent    bool
	lent       lent

	waiter waiter
	saved  snapshot[writeCounts]
}

// lent is what a write lease lends.
type lent struct {
	n       int    // bytes
	staging []byte // filled instead of the peer's memory, where that is not mapped
	staged  []byte // the part of staging that is lent, or nil
	at      int    // where it goes in the queue, or nowhere
}

func (w *writer) init(c *control, s *state, o *Options) {
	w.control, w.state = c, s
	w.bell.control = c
	w.waiter.init(w, c, o)
	if c.frames != nil {
		w.turn = &link.Turn{Wake: w.waiter.notify}
	}
	w.limit.Store(int64(o.Buffer))
}

// socketRoom is how much a socket takes of what is written, whether or not the peer reads.
// It is less than any socket's buffers.
const socketRoom = 64 << 10

// announceEach is how many bytes of a Write may be there until the reader is told of them, but for its first and last record: the
// wire takes less time for them than a sleeping reader takes to wake. Row: TestMany, parked.
const announceEach = 8 << 10

// write is Pair.Write, but for errors of the whole connection. A peer that reads no more is
// found like one that a socket has: what fits into a socket counts as written, and is lost.
func (w *writer) write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.writeHeld(p, true)
}

// hold has other calls wait until the end of a write lease, in which writeHeld may be called.
func (w *writer) hold() error {
	w.mu.Lock()
	if err := w.state.lease(leaseWrite); err != nil {
		w.mu.Unlock()
		return err
	}
	w.mu.Lend()
	return nil
}

// writeHeld is write for a caller that holds mu. If may is false, it returns EAGAIN where it would wait.
func (w *writer) writeHeld(p []byte, may bool) (n int, err error) {
	due := 0 // bytes of the last records, which were not announced
	for begun := false; ; begun = true {
		if err := w.err(len(p) == 0, begun && len(p) <= socketRoom); err != nil || n == len(p) {
			if err != nil {
				w.leaveTurn()
			}
			if due > 0 {
				w.bell.announce()
			}
			if err == errUnread && len(p) <= socketRoom {
				return len(p), errTaken
			}
			return n, err
		}
		k, waits := w.put(p[n:], min(len(p), socketRoom)-n)
		if k == 0 && due > 0 {
			w.bell.announce()
			due = 0
		}
		switch {
		case k > 0:
		case !may:
			if progress, err := w.findRoom(); err != nil {
				return n, err
			} else if waits || !progress {
				return n, syscall.EAGAIN
			}
			continue
		case waits:
			w.waitTurn()
			continue
		default:
			if err := w.makeRoom(); err != nil {
				return n, err
			}
			continue
		}
		n += k
		if due += k; n == k || n == len(p) || due >= announceEach {
			w.bell.announce()
			due = 0
		}
		if n == len(p) {
			return n, nil
		}
		if len(p)-n > w.tx.size {
			if err := w.outgrow(); err != nil {
				w.leaveTurn()
				return n, err
			}
		}
	}
}

// outgrow is called where more is to be written at once than the queue is large. The reader may be so fast that no
// Write waits for room. So outgrow asks for a larger queue, and goes on in one that was granted.
func (w *writer) outgrow() error {
	if w.grant() != w.grantSeen {
		_, err := w.takeCredit()
		return err
	}
	w.tx.short++
	w.askAgain()
	return nil
}

// makeRoom applies the credit that has come, or waits for some.
func (w *writer) makeRoom() error {
	progress, err := w.findRoom()
	if err == nil && !progress {
		w.waiter.wait()
	}
	return err
}

// findRoom applies the credit that has come. If none has, it reports false, and asks for a larger queue.
func (w *writer) findRoom() (progress bool, err error) {
	w.leaveTurn() // data of others need not wait for our credit
	progress, err = w.takeCredit()
	if err == nil && !progress {
		w.tx.stalled()
		w.askAgain()
		w.askLarger() // room may well come before a wait parks
	}
	return progress, err
}

// err returns why nothing can be written, or nil. none is set if there is nothing to
// write. As with TCP, a write to a peer that reads no more resets the connection. If whole is
// set, the write has begun and counts as written if the peer ends: then that is errUnread, and
// the reset is left to the next write. The caller holds mu.
func (w *writer) err(none, whole bool) error {
	stop := w.waiter.stop.Load()
	if err := stopErr(stop); err != nil {
		return err // without a look: the memory may be gone
	}
	peer := w.control.state()
	switch {
	case stop == 0 && !takesNothing(peer):
		return nil
	case whole && w.endedBy(peer, stop):
		return errUnread
	case peer&stateReset != 0 || lost(stop):
		return w.state.resetErr(syscall.EPIPE)
	case stop&stopShut != 0 || w.state.aborted():
		return syscall.EPIPE
	case none:
		return nil
	}
	return errUnread
}

// peerEnded reports whether the peer, and nothing else, ended the connection or gave it
// up.
func (w *writer) peerEnded() bool {
	stop := w.waiter.stop.Load()
	if stopErr(stop) != nil {
		return false // without a look: the memory may be gone
	}
	return w.endedBy(w.control.state(), stop)
}

// endedBy is peerEnded for a state of the peer and what stops this side.
func (w *writer) endedBy(peer, stop uint32) bool {
	return takesNothing(peer) && stop&stopShut == 0 && !lost(stop) && !w.state.aborted()
}

// reserve is Pair.Reserve, but for errors of the whole connection. Without an error, mu
// stays locked.
func (w *writer) reserve(n int) ([]byte, error) {
	if n < 1 {
		panic(fmt.Sprintf("bounce: reserve %d bytes", n))
	}
	w.mu.Lock()
	b, err := w.room(n)
	if err == nil {
		err = w.state.lease(leaseWrite)
	}
	if err != nil {
		w.mu.Unlock()
		return nil, err
	}
	w.mu.Lend()
	return b, nil
}

// room waits for room, and returns some of it. The caller holds mu.
func (w *writer) room(n int) ([]byte, error) {
	for {
		if err := w.err(false, false); err != nil {
			w.leaveTurn()
			if err == errUnread {
				return w.stage(min(n, maxPiece), nowhere), nil
			}
			return nil, err
		}
		if w.turn != nil && !w.control.frames.Room(w.turn) {
			w.waitTurn()
			continue
		}
		if n > w.tx.size {
			if err := w.outgrow(); err != nil {
				w.leaveTurn()
				return nil, err
			}
		}
		off, k := w.tx.reserve(n)
		if k == 0 {
			if err := w.makeRoom(); err != nil {
				return nil, err
			}
			continue
		}
		w.leaveTurn() // later data finds room, or is kept aside: one record at most
		if b := w.tx.win.Bytes(off, k); b != nil {
			w.lent.n, w.lent.at = k, off
			return b, nil
		}
		return w.stage(k, off), nil // the peer's memory is not mapped here; it is written at commit
	}
}

// nowhere is the address of what is lent when the peer reads no more.
const nowhere = -1

// stage lends n bytes of memory that is not the peer's.
func (w *writer) stage(n, at int) []byte {
	if cap(w.lent.staging) < n {
		w.lent.staging = make([]byte, maxPiece)
	}
	w.lent.n, w.lent.at, w.lent.staged = n, at, w.lent.staging[:n:n]
	return w.lent.staged
}

// commit makes a record of the first n bytes that reserve has lent. The lease goes on. It
// returns errTaken if the peer has ended and does not read them.
func (w *writer) commit(n int) (err error) {
	if n < 0 || n > w.lent.n {
		panic(fmt.Sprintf("bounce: commit %d of %d bytes", n, w.lent.n))
	}
	if n > 0 && w.lent.at != nowhere && w.up() {
		if w.lent.staged != nil {
			w.tx.win.Write(w.lent.at, w.lent.staged[:n])
		}
		w.tx.commit(n, n)
		w.bell.announce()
	}
	if n > 0 && w.peerEnded() {
		err = errTaken
	}
	w.lent.n, w.lent.staged = 0, nil
	return err
}

// up reports whether what is stored gets to the peer.
func (w *writer) up() bool { return w.waiter.stop.Load()&(stopDown|stopBroken) == 0 }

// finish publishes the FIN, once, and reports whether it did. If wake is true, it wakes
// the peer's reader. Otherwise something follows that does. The caller holds mu.
func (w *writer) finish(wake bool) bool {
	if w.finSent || w.state.aborted() {
		return false
	}
	up := w.up()
	if up {
		w.tx.fin()
	}
	w.finSent = true
	w.state.finish(up)
	if up && wake {
		w.bell.announce()
	}
	return up
}

// Where frames lead to the peer, they sometimes take no data, because as much is under way
// as may be, or data of other connections waits too. write asks for room first, and waits
// for its turn here, as it waits for credit. So its deadline, Close and the peer's death
// count. Everything that is not data never waits.

// put is sender.put. If it returns 0, there is no room in the queue, or, if waits is true,
// the frames take none and the turn is waited for. The caller holds mu.
func (w *writer) put(p []byte, together int) (n int, waits bool) {
	if w.turn == nil {
		return w.tx.put(p, together), false
	}
	off, n := w.tx.reserve(len(p))
	if n == 0 {
		return 0, false
	}
	if n = w.control.frames.Data(w.tx.win.Offset()+off, p[:n], w.turn); n == 0 {
		return 0, true
	}
	w.tx.commit(n, together)
	return n, false
}

// waitTurn waits until frames take data, or there is a reason to stop. The caller holds
// mu, and checks again.
func (w *writer) waitTurn() {
	if w.waiter.spinner.Spin((*queued)(w)) >= wait.Hit {
		return
	}
	w.waiter.parked.Store(true)
	defer w.waiter.parked.Store(false)
	w.waiter.rest()
	for !w.control.frames.Room(w.turn) && !w.Stopped() {
		w.waiter.sleep()
	}
}

// queued is a writer that waits for its turn. It takes what has come for this process between
// its looks.
type queued writer

func (q *queued) Ready() bool {
	w := (*writer)(q)
	return (w.control.frames.Poll() || len(w.waiter.wake) > 0) && w.control.frames.Room(w.turn)
}

func (q *queued) Stopped() bool { return (*writer)(q).Stopped() }

// leaveTurn gives up the turn that an earlier call may have left. The caller
// holds mu.
func (w *writer) leaveTurn() {
	if w.turn != nil {
		w.control.frames.Leave(w.turn)
	}
}

func (w *writer) credit() uint64 { return ntb.Load64(w.control.here, offCredit) }
func (w *writer) grant() uint64  { return ntb.Load64(w.control.here, offGrant) }

// takeCredit reads the words by which the peer gives room: credit for the queue,
// and a new queue. It reports whether either has changed.
func (w *writer) takeCredit() (progress bool, err error) {
	if n := int(w.limit.Load()); n != w.tx.max {
		w.tx.limit(n)
	}
	// Each word is loaded once, so that the compared value is the one that is used.
	credit, grant := w.credit(), w.grant()
	progress = credit != w.creditSeen || grant != w.grantSeen
	w.creditSeen, w.grantSeen = credit, grant
	if !w.tx.credit(credit) {
		return false, violation{fmt.Errorf("%w: credit %#x", errBadRecord, credit)}
	}
	if w.tx.precedes(grant) {
		win, err := w.control.remoteQueue(queueOf(grant))
		if err != nil {
			return false, violation{err}
		}
		w.tx.move(win)
		w.bell.announce()
	}
	return progress, nil
}

// move goes on in the queue that was granted, if no call is under way, and notifies the
// peer, whose application may be idle as well. It is called as [link.Notified] is.
func (w *writer) move() error {
	if w.grant() == 0 || !w.mu.visit() {
		return nil // never granted, or a call that is under way takes the grant
	}
	defer w.mu.leave()
	if w.grant() == w.grantSeen || w.waiter.stop.Load()&^stopDeadline != 0 || w.finSent {
		return nil
	}
	if _, err := w.takeCredit(); err != nil {
		return err
	}
	w.control.notifyReader()
	return nil
}

// The methods of half.

func (w *writer) Ready() bool { return w.credit() != w.creditSeen || w.grant() != w.grantSeen }

func (w *writer) Stopped() bool { return w.waiter.interrupted() || takesNothing(w.control.state()) }

// askAgain asks for a larger queue if this one is outgrown, even if one was asked for before.
func (w *writer) askAgain() {
	if w.tx.outgrown() {
		w.askedIn = 0
		w.askLarger()
	}
}

// askLarger asks for a larger queue if that would help, once for each queue.
func (w *writer) askLarger() {
	if w.askedIn == w.tx.gen || !w.tx.wantsLarger() {
		return
	}
	if w.waiter.fenced {
		w.armWith(parkingBit)
	} else {
		w.armWith(0)
	}
}

// arm has the peer's reader give back all credit, and perhaps a larger queue.
func (w *writer) arm() {
	if w.control.frames != nil {
		w.armWith(0)
	} else {
		w.armWith(parkingBit)
	}
}

// armWith arms for room, and asks for a larger queue if that would help. The peer's
// reader answers when it reads. If the peer is notified as well, its link's goroutine
// grants a queue at once, if it can. From bulkQueue on memory may be short for long, so
// the peer is notified once for each queue, and again by askAgain.
//
// Over several hops a later arm can replace this one on its way, and arrive behind the
// notification. A large queue then stays as it is, and credit comes for the later arm.
func (w *writer) armWith(bits uint32) {
	w.arms++
	bits |= armedBit
	if !w.tx.wantsLarger() {
		w.publishArm(bits)
		return
	}
	w.publishArm(bits | growBit)
	if w.tx.size < bulkQueue || w.askedIn != w.tx.gen {
		w.askedIn = w.tx.gen
		w.control.notifyReader()
	}
}

// publishArm publishes the arm word with the given low bits.
func (w *writer) publishArm(bits uint32) {
	w.control.far.Update32(offSpaceArm, w.tx.gen<<24|w.arms<<armShift&0xffffff|bits)
}

func (w *writer) line() int { return w.control.slot }

func (w *writer) beforeSleep() { w.save() }

// save copies the counters to where Stats finds them while mu is held. The caller holds mu.
func (w *writer) save() {
	c := writeCounts{pathStats: w.tx.st, streamed: w.tx.bulk.Streamed(), dma: w.tx.dma.stats(), doorbells: w.bell.rung.Load(), waits: w.waiter.counts()}
	if w.tx.gen > 0 {
		c.moves = uint64(w.tx.gen - 1)
	}
	w.saved.store(c)
}

// busy reports whether the call that holds mu may last long.
func (w *writer) busy() bool { return w.waiter.parked.Load() || w.state.leased(leaseWrite) }
