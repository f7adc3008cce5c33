package ring

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/ntbnet/ntbnet/flowctl"
	"github.com/ntbnet/ntbnet/internal/frame"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/internal/tunnel"
	"github.com/ntbnet/ntbnet/ntb"
)

// waiter waits for its turn in an outLane: a source, or a lane whose head goes there. One of
// the two is nil. A source is a tunnel, or a sendQueue, which has the advertisements or the resets of a link.
type waiter struct {
	source tunnel.Source
	lane   *inLane
}

// result is what became of a head.
type result uint8

const (
	headWent    result = iota
	headWaits          // for its turn
	headHolds          // for a short time: try again
	headDown           // the link is down
	headStopped        // the other end does not take frames
)

// outLane is a lane of a link, towards the neighbour. It pulls frames from those that wait
// for their turn, on the goroutine that finds that there is a frame, or room. A tunnel's frame
// is copied from where the tunnel keeps it, a forwarded one from the slot in which it came.
//
// The goroutine that calls Want puts in frames of sources alone: it works for one tunnel, and
// must not be kept by another link. Heads of lanes are put in by the goroutines that work for
// lanes. One of these comes for each lane that waits: where there is no room, the neighbour
// rings when it gives some; where own traffic gives way, see inLane.pollOnward.
type outLane struct {
	link  *Link
	index int
	queue ntb.Window // the slots, in the neighbour's window; immutable
	words ntb.Window // the lane's words there; immutable
	mine  []byte     // the lane's words here, written by the neighbour; immutable

	// mu guards the following. It is locked after an inLane's, and before a tunnel's.
	mu      lock.Mutex[lock.LaneOut]
	down    bool // the windows may be gone
	turns   turns[waiter]
	account flowctl.Send // of slots
	credit  uint32       // last credit word seen
	hop     uint64       // frames put; the lower half is the last hop number
	arm     uint32       // last space arm published
	armed   bool         // arm was published and no worker has looked since
	rung    uint32       // the neighbour's data arm that was answered
	header  [frame.HeaderBytes]byte
	bulk    ntb.Bulk // how bodies are stored
	stall   stall
	stats   laneStats

	waits   atomic.Bool   // a waiter is left; for the worker, and for pollOnward
	seen    atomic.Uint32 // the credit word that pollSome saw last; stored under mu
	polling atomic.Uint64 // calls of pollLater since pollOn began; 0: it does not run
}

type laneStats struct {
	ownFrames, ownBytes, fwdFrames, fwdBytes, doorbells uint64
}

func newOutLane(l *Link, index int, queue, words ntb.Window, mine []byte) *outLane {
	o := &outLane{link: l, index: index, queue: queue, words: words, mine: mine, account: flowctl.NewSend(l.opts.Slots)}
	o.turns = turns[waiter]{needs: 2, quantum: o.slotBytes(), noHold: l.opts.NoSpin}
	return o
}

func (o *outLane) slotBytes() int { return o.link.opts.slotBytes() }

// free applies the credit that has come, and returns how many slots are free. It
// returns 0 when the link is down, since its memory may be gone. The caller holds
// mu.
func (o *outLane) free() int {
	if o.down {
		return 0
	}
	word := ntb.Load32(o.mine, laneCredit)
	if word != o.credit {
		if !o.account.Credit(flowctl.Pos(word)) {
			o.down = true
			o.link.fail(fmt.Errorf("%w: impossible credit of lane %d from %v", link.ErrProtocol, o.index, o.link.id))
			return 0
		}
		o.credit = word
		o.stall.stopped = false
	}
	return o.account.Room()
}

// next returns what goes into the lane next. The caller holds mu.
func (o *outLane) next() (turn, waiter) {
	free := o.free() // first, since credit ends a stall
	return o.turns.next(free, o.expected(), time.Now)
}

// expected returns what is known of frames that are to be forwarded by this lane and do not
// wait yet. Own traffic that is ahead gives way to them: it needs neither a worker nor a
// neighbour to run, and would take each slot that becomes free before they do. The caller
// holds mu.
func (o *outLane) expected() expectation {
	if o.turns.lead <= 0 || len(o.turns.forwarded) > 0 || o.link.direction > Right {
		return expectNone
	}
	from := o.link.router.sides[o.link.direction.opposite()].Load()
	if from == nil {
		return expectNone
	}
	return from.in[o.index].transitPending()
}

// Want implements tunnel.Lane.
func (o *outLane) Want(s tunnel.Source) {
	o.mu.Lock()
	last := turnNone
	if !o.down {
		o.turns.join(waiter{source: s}, true)
		_, last = o.run()
	}
	o.mu.Unlock()
	if last == turnOwn {
		o.pollLater()
	}
}

// Forget implements tunnel.Lane.
func (o *outLane) Forget(s tunnel.Source) { o.forget(waiter{source: s}) }

// forget ends the wait of w. Those behind it may go now. The caller holds no lock of a tunnel
// or an outLane.
func (o *outLane) forget(w waiter) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.turns.leave(w); len(o.turns.own)+len(o.turns.forwarded) > 0 {
		o.waits.Store(true)
		o.pollLater()
	}
}

// turnsOfRun is how many frames of sources one call of run puts in at most. A source may have
// another frame for each turn, and the neighbour room for it, for ever.
const turnsOfRun = 64

// run puts in frames of sources, turn by turn. It returns what stopped it. That is turnOwn if
// there were too many frames. If it is the turn of a lane, next is that one. The caller holds
// mu.
func (o *outLane) run() (next *inLane, what turn) {
	for range turnsOfRun {
		if o.down || !o.link.dev.LinkUp() {
			return nil, turnNone // close goes on
		}
		what, first := o.next()
		switch what {
		case turnOwn, turnForward:
			if first.lane != nil {
				o.waits.Store(true)
				return first.lane, what
			}
			o.pull(first)
		case turnRoom:
			if !o.armSpace() {
				o.watchStall()
				return nil, what
			}
		case turnYield:
			if o.waits.Swap(true) {
				return nil, what
			}
			// The goroutine that takes the frame that has come calls poll from now on
			// (pair S14, with pollOnward). It may have taken it before: look again.
		case turnHold:
			o.waits.Store(true)
			return nil, what
		case turnNone:
			// The arm may have been answered. The next that waits arms anew.
			o.armed = false
			o.waits.Store(false)
			return nil, what
		}
	}
	o.waits.Store(true)
	return nil, turnOwn
}

// pull puts in the next frame of w's source, whose turn it is. The caller holds mu.
func (o *outLane) pull(w waiter) {
	n, more := w.source.Send(o)
	o.turns.went(true, n, more)
	if n > 0 {
		o.stats.ownFrames++
		o.stats.ownBytes += uint64(n)
	}
}

// forward puts in the head of a lane, which is f, if it is its turn. Otherwise the lane waits.
// own means that the head is a member's, which counts as this process' own traffic. The caller
// holds from.mu.
func (o *outLane) forward(f *frame.Header, body []byte, from *inLane, own bool) result {
	o.mu.Lock()
	defer o.mu.Unlock()
	w := waiter{lane: from}
	if !own && o.free() > 0 && o.turns.pass(w, f.Size()) {
		o.putForwarded(f, body)
		return headWent
	}
	o.turns.join(w, own)
	for {
		what, first := o.next()
		mine := first == w && (what == turnOwn || what == turnForward)
		switch {
		case o.down:
			o.turns.leave(w)
			return headDown
		case mine, from.final && !own && o.account.Room() > 0:
			if mine {
				o.turns.went(own, f.Size(), false)
			} else {
				o.turns.leave(w)
			}
			o.putForwarded(f, body)
			return headWent
		case from.final:
			o.turns.leave(w)
			return headDown
		case what == turnHold:
			return headHolds
		case first.source != nil:
			o.pull(first)
		case what == turnRoom && o.stall.stopped:
			o.turns.leave(w)
			return headStopped
		case what == turnRoom:
			if !o.armSpace() {
				o.watchStall()
				return headWaits
			}
		case what == turnYield && !o.waits.Swap(true):
			// As in run: look again.
		default:
			o.waits.Store(true)
			return headWaits
		}
	}
}

// putForwarded is Put for a frame that came over another link. The caller holds mu.
func (o *outLane) putForwarded(f *frame.Header, body []byte) {
	o.Put(f, body)
	o.stats.fwdFrames++
	o.stats.fwdBytes += uint64(f.Size())
}

// Put fills the next slot, which is free. The caller holds mu.
func (o *outLane) Put(f *frame.Header, body []byte) {
	at := int(o.hop%uint64(o.link.opts.Slots)) * o.slotBytes()
	o.hop++
	f.Encode(&o.header)
	o.link.raceRelease()
	if o.queue.Kind() == ntb.WriteCombining {
		// A full line is one packet. Until the frame is valid, its first word has another hop number.
		binary.LittleEndian.PutUint64(o.header[:], uint64(uint32(o.hop-1)))
		o.queue.Write(at, o.header[:])
	} else {
		o.queue.Write(at+8, o.header[8:])
	}
	if f.Length > 0 {
		o.bulk.Write(&o.queue, at+frame.HeaderBytes, body[:f.Length])
	}
	o.queue.Publish64(at, f.First(uint32(o.hop)))
	o.account.Produce(1)
	// This pairs with inLane.sleep: either this side sees the arm, or the neighbour the
	// frame (pair S6).
	link.AfterStore(&o.link.caps)
	if arm := ntb.Load32(o.mine, laneDataArm); arm != o.rung {
		o.rung = arm
		o.stats.doorbells++
		o.link.dev.RingDoorbell(o.index)
	}
}

// armSpace publishes the space arm, so that the neighbour rings when it gives credit. It
// reports whether some has come meanwhile, so that the caller must look again. It pairs with
// inLane.answer (pair S7). The caller holds mu.
func (o *outLane) armSpace() bool {
	o.waits.Store(true)
	if o.armed || o.down {
		return false
	}
	o.armed = true
	o.arm++
	before := o.credit
	o.words.Publish32(laneSpaceArm, o.arm)
	link.BeforeLook(o.link.dev, &o.link.caps)
	o.free()
	return o.credit != before
}

// roomCame reports whether a source or a lane waits, and credit has come since a worker looked
// last. It takes no lock.
func (o *outLane) roomCame() bool {
	return o.waits.Load() && ntb.Load32(o.mine, laneCredit) != o.seen.Load()
}

// creditCame is roomCame for a goroutine that does not work for the link, whose memory may be
// gone.
func (o *outLane) creditCame() bool {
	if !o.waits.Load() || !o.mu.TryLock() {
		return false
	}
	defer o.mu.Unlock()
	return !o.down && ntb.Load32(o.mine, laneCredit) != o.seen.Load()
}

// poll lets those that wait go on, turn by turn. It does not keep the caller for as long as
// there are some. The caller holds no locks of lanes or tunnels.
func (o *outLane) poll() {
	if o.pollSome() {
		o.pollLater()
	}
}

// pollLater is poll on a goroutine, of which there is at most one at a time.
func (o *outLane) pollLater() {
	if o.polling.Add(1) == 1 {
		go o.pollOn()
	}
}

// pollOn does what calls of pollLater ask for, until there is no new one.
func (o *outLane) pollOn() {
	for asked := uint64(1); ; asked = o.polling.Load() {
		for o.pollSome() {
		}
		if o.polling.CompareAndSwap(asked, 0) {
			return
		}
	}
}

// lanesOfPoll is how often one call of pollSome lets the heads of lanes go on at most.
const lanesOfPoll = 64

// pollSome is poll limited to some turns: a worker has frames to take, too. It reports
// whether there may be more, which nothing else announces.
func (o *outLane) pollSome() (more bool) {
	if !o.waits.Load() {
		return false
	}
	for range lanesOfPoll {
		o.mu.Lock()
		o.armed = false
		o.free()
		o.seen.Store(o.credit)
		next, what := o.run()
		o.mu.Unlock()
		switch {
		case next != nil:
			next.drain()
			if o.link.direction == Down {
				next.pollOnward() // frames behind the head may have gone by another lane
			}
		case what == turnHold:
			ntb.Pause()
			runtime.Gosched()
		default:
			return what == turnOwn // more than the caller is kept for
		}
	}
	return true
}

// close is called when the link is down. No frame is put in any more, and every lane that
// waits finds another next hop.
func (o *outLane) close() {
	o.mu.Lock()
	o.down = true
	lanes := o.lanes()
	o.turns.end()
	o.mu.Unlock()
	for _, l := range lanes {
		l.drain()
		l.pollOnward()
	}
}

// lanes returns the lanes that wait. The caller holds mu.
func (o *outLane) lanes() (all []*inLane) {
	for _, list := range [][]account[waiter]{o.turns.forwarded, o.turns.own} {
		for _, a := range list {
			if a.source.lane != nil {
				all = append(all, a.source.lane)
			}
		}
	}
	return all
}
