package ring

import (
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ntbnet/ntbnet/flowctl"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/ntb"
)

const (
	// patience is how long forwarded traffic leaves a lane's only free slot alone
	// when it is the turn of this node's own traffic, which needs two.
	patience = 20 * time.Microsecond
	// leadFrames is how many of the largest frames either kind of traffic may owe
	// the other.
	leadFrames = 32
	// aheadFrames is how many of the largest frames own traffic must be ahead
	// before it gives way to forwarded frames that have yet to come.
	aheadFrames = 4
	// maxSkip is for how many turns at most it does not give way, after that
	// brought nothing.
	maxSkip = 15
)

// ownSource is a source of frames of this node: a tunnel, the news of a link, or
// the lane of a member.
type ownSource interface {
	// serve puts one frame into o, by outLane.own with served set, and then goes on
	// as at any other time. The caller holds no locks of lanes or tunnels.
	serve(o *outLane)
}

// Results of put.
type putResult uint8

const (
	putDone    putResult = iota
	putWait              // no room: the source that asked will be called
	putDown              // the link is down
	putStopped           // the other end does not take frames
)

// outLane is a lane of a link, towards the neighbour. It decides, under one lock,
// which source may put a frame in.
type outLane struct {
	link  *Link
	index int
	queue ntb.Window // the slots, in the neighbour's window; immutable
	words ntb.Window // the lane's words there; immutable
	mine  []byte     // the lane's words here, written by the neighbour; immutable

	mu      lock.Mutex[lock.LaneOut]
	down    bool         // the windows may be gone; guarded by mu
	account flowctl.Send // of slots; guarded by mu
	hop     uint64       // frames put; the lower half is the last hop number; guarded by mu
	arm     uint32       // last space arm published; guarded by mu
	armed   bool         // arm was published and no goroutine has looked since; guarded by mu
	rung    uint32       // the neighbour's data arm that was answered; guarded by mu
	fwd     []*inLane    // lanes whose head waits; guarded by mu
	waiting []ownSource  // in the order of asking, each once; guarded by mu
	lead    int          // bytes by which this node's own traffic is ahead of forwarded traffic, at most maxLead either way; guarded by mu
	vain    int          // grows with holds that brought nothing; guarded by mu
	skip    int          // number of turns without a hold; guarded by mu
	header  [frameHeader]byte
	stats   laneStats // guarded by mu

	// Guarded by mu; see watchStall.
	stalled  bool // it gave no credit for long
	watching bool // stall is set
	watched  uint32
	stall    *time.Timer

	waits   atomic.Bool   // a source waits; for the worker's re-check
	polling atomic.Bool   // pollOn runs
	credit  atomic.Uint32 // last credit word seen
}

type laneStats struct {
	ownFrames, ownBytes, fwdFrames, fwdBytes, doorbells uint64
}

func (o *outLane) slotBytes() int { return frameHeader + o.link.opts.FrameBytes }

// maxLead returns how many bytes either kind of traffic may owe the other.
func (o *outLane) maxLead() int { return leadFrames * o.slotBytes() }

// free applies the credit that has come, and returns how many slots are free. It
// returns 0 when the link is down, since its memory may be gone. The caller holds
// mu.
func (o *outLane) free() int {
	if o.down {
		return 0
	}
	word := ntb.Load32(o.mine, laneCredit)
	if word != o.credit.Load() {
		if !o.account.Credit(flowctl.Pos(word)) {
			o.down = true
			o.link.fail(fmt.Errorf("%w: impossible credit of lane %d from %v", link.ErrProtocol, o.index, o.link.id))
			return 0
		}
		o.credit.Store(word)
		o.stalled = false
	}
	return o.account.Room()
}

// ownNeeds returns how many slots must be free for a frame of this node's own. This
// is the bubble rule, see the package comment.
func (o *outLane) ownNeeds() int {
	if o.link.opts.noBubble {
		return 1
	}
	return 2
}

// ownTurn reports whether the next frame should be this node's own. The caller
// holds mu.
func (o *outLane) ownTurn() bool { return len(o.waiting) > 0 && o.lead <= 0 }

// holds reports whether a forwarded frame leaves the only free slot alone for now,
// because it is the turn of this node's own traffic, which needs another slot. It
// must not do so for long: if all nodes of a ring do, none gets another slot. The
// caller holds mu.
func (o *outLane) holds(since *time.Time) bool {
	if o.link.opts.NoSpin {
		return false
	}
	if o.skip > 0 {
		o.skip--
		return false
	}
	now := time.Now()
	if since.IsZero() {
		*since = now
	}
	if now.Sub(*since) < patience {
		return true
	}
	// The hold brought nothing: the ring is full. Forwarding comes first for a
	// while.
	o.vain = min(2*o.vain+1, maxSkip)
	o.skip = o.vain
	return false
}

// mayOwn reports whether the lane may take a frame of this node's own. The caller
// holds mu.
func (o *outLane) mayOwn(free int) bool {
	return free >= o.ownNeeds() && !(len(o.fwd) > 0 && o.lead > 0)
}

// yields reports whether it is the turn of frames to be forwarded that no goroutine
// is taking yet. Without it, this node's own traffic, which needs neither a worker
// nor a neighbour to run, would take each slot that becomes free before they do. For
// frames that have yet to come, own traffic gives way only when it is far ahead, so
// that the link is busy meanwhile. The caller holds mu.
func (o *outLane) yields() bool {
	if o.lead <= 0 || o.link.direction > Right {
		return false
	}
	from := o.link.router.sides[o.link.direction.opposite()].Load()
	if from == nil {
		return false
	}
	here, coming := from.in[o.index].goesOn()
	return here || coming && o.lead > aheadFrames*o.slotBytes()
}

// forward puts a frame in that came over another link. If there is no room, the
// lane of that link waits, unless it is being closed. The caller holds from.mu.
func (o *outLane) forward(f *frame, body []byte, from *inLane) putResult {
	o.mu.Lock()
	defer o.mu.Unlock()
	// The lane counts as waiting from now on, even while mu is released below.
	if !slices.Contains(o.fwd, from) {
		o.fwd = append(o.fwd, from)
	}
	var held time.Time
	for {
		free := o.free()
		switch {
		case o.down:
			o.unforward(from)
			return putDown
		case free >= o.ownNeeds() && o.ownTurn():
			o.vain = 0
			o.serveOne()
		case free > 0 && o.ownTurn() && !from.final && o.holds(&held):
			o.mu.Unlock()
			runtime.Gosched()
			o.mu.Lock()
		case free > 0:
			o.unforward(from)
			o.put(f, body)
			o.lead = max(o.lead-f.size(), -o.maxLead())
			o.stats.fwdFrames++
			o.stats.fwdBytes += uint64(f.size())
			return putDone
		case from.final:
			o.unforward(from)
			return putDown
		case o.stalled:
			o.unforward(from)
			return putStopped
		default:
			if !slices.Contains(o.fwd, from) {
				o.fwd = append(o.fwd, from) // poll called it without success
			}
			if !o.await() {
				o.watchStall()
				return putWait
			}
		}
	}
}

// unforward removes a lane from those that wait. The caller holds mu.
func (o *outLane) unforward(from *inLane) {
	o.fwd = slices.DeleteFunc(o.fwd, func(l *inLane) bool { return l == from })
}

// own puts a frame of this node's own in, or has s wait for its turn. served says
// that it is its turn. The caller holds no lock of a lane, except perhaps an
// inLane's.
func (o *outLane) own(f *frame, body []byte, s ownSource, served bool) putResult {
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		free := o.free() // first, since credit ends stalled, also where it is another one's turn
		turn := served || len(o.waiting) == 0 || o.waiting[0] == s
		may := turn && o.mayOwn(free) && !o.down
		if may && !o.yields() {
			o.unwait(s)
			o.put(f, body)
			o.lead = min(o.lead+f.size(), o.maxLead())
			if _, member := s.(*inLane); member {
				o.stats.fwdFrames++
				o.stats.fwdBytes += uint64(f.size())
			} else {
				o.stats.ownFrames++
				o.stats.ownBytes += uint64(f.size())
			}
			return putDone
		}
		if o.down {
			o.unwait(s)
			return putDown
		}
		if !slices.Contains(o.waiting, s) {
			if served {
				o.waiting = slices.Insert(o.waiting, 0, s) // its turn was not used
			} else {
				o.waiting = append(o.waiting, s)
			}
		}
		if may {
			// The goroutine that takes the frame that has come then calls poll (pair S14,
			// with pollOnward).
			o.waits.Store(true)
			if o.yields() {
				return putWait
			}
			continue
		}
		if _, member := s.(*inLane); member && o.stalled {
			o.unwait(s)
			return putStopped
		} else if !o.await() {
			if member {
				o.watchStall()
			}
			return putWait
		}
	}
}

// unwait removes s from those that wait. The caller holds mu.
func (o *outLane) unwait(s ownSource) {
	if i := slices.Index(o.waiting, s); i >= 0 {
		o.waiting = slices.Delete(o.waiting, i, i+1)
	}
}

// serveOne lets the next own source put a frame in. The caller holds mu, which is
// released meanwhile.
func (o *outLane) serveOne() {
	s := o.waiting[0]
	o.waiting = slices.Delete(o.waiting, 0, 1)
	o.mu.Unlock()
	s.serve(o)
	o.mu.Lock()
}

// put fills the next slot, which is free. The caller holds mu.
func (o *outLane) put(f *frame, body []byte) {
	at := int(o.hop%uint64(o.link.opts.Slots)) * o.slotBytes()
	o.hop++
	f.encode(&o.header)
	o.link.raceRelease()
	o.queue.Write(at+8, o.header[8:])
	if f.length > 0 {
		o.queue.Write(at+frameHeader, body[:f.length])
	}
	o.queue.Publish64(at, f.first(uint32(o.hop)))
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

// await asks the neighbour to ring when it gives credit. It reports whether some has
// come meanwhile, so that the caller must look again. It pairs with inLane.answer
// (pair S7). The caller holds mu.
func (o *outLane) await() bool {
	o.waits.Store(true)
	if o.armed || o.down {
		return false
	}
	o.armed = true
	o.arm++
	before := o.credit.Load()
	o.words.Publish32(laneSpaceArm, o.arm)
	link.BeforeLook(o.link.dev, &o.link.caps)
	o.free()
	return o.credit.Load() != before
}

// stirred reports whether a source waits and credit has come. It takes no lock.
func (o *outLane) stirred() bool {
	return o.waits.Load() && ntb.Load32(o.mine, laneCredit) != o.credit.Load()
}

// poll lets the sources and lanes that waited for room go on, turn by turn. It does not
// keep the caller for as long as there are some. The caller holds no locks of lanes or
// tunnels.
func (o *outLane) poll() {
	if o.pollSome() && o.polling.CompareAndSwap(false, true) {
		go o.pollOn()
	}
}

// pollOn is poll until none is left that could go on. It is a goroutine, of which there
// is at most one at a time.
func (o *outLane) pollOn() {
	for again := true; again; {
		for o.pollSome() {
		}
		o.polling.Store(false)
		// A caller of poll that found it set has left the rest to this goroutine.
		again = o.pollSome() && o.polling.CompareAndSwap(false, true)
	}
}

// pollTurns is how many turns one call of pollSome gives at most.
const pollTurns = 64

// pollSome is poll limited to some turns. It reports whether there may be more, which
// nothing else announces.
func (o *outLane) pollSome() (more bool) {
	if !o.waits.Load() {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.armed = false
	for turns := 0; !o.down && o.link.dev.LinkUp(); turns++ {
		if turns == pollTurns {
			return true
		}
		free := o.free()
		switch {
		case len(o.fwd) > 0 && free > 0:
			l := o.fwd[0]
			o.fwd = slices.Delete(o.fwd, 0, 1)
			o.mu.Unlock()
			l.drain()
			if o.link.direction == Down {
				l.pollOnward() // frames behind the head may have gone by another lane
			}
			o.mu.Lock()
		case len(o.waiting) > 0 && o.mayOwn(free):
			if o.yields() {
				return false // the goroutine that takes that frame calls poll again
			}
			o.serveOne()
		case len(o.fwd) == 0 && len(o.waiting) == 0:
			// The arm may have been answered. The next that waits arms anew.
			o.armed = false
			o.waits.Store(false)
			return false
		default:
			if !o.await() {
				return false
			}
		}
	}
	return false // close goes on
}

// close is called at the end of the link. No frame is put in any more, and
// everything that waits finds another way.
func (o *outLane) close() {
	o.mu.Lock()
	o.down = true
	fwd, waiting := o.fwd, o.waiting
	o.fwd, o.waiting = nil, nil
	o.mu.Unlock()
	for _, l := range fwd {
		l.drain()
		l.pollOnward()
	}
	for _, s := range waiting {
		s.serve(o)
	}
}
