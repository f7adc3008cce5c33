package ring

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/ntbnet/ntbnet/internal/frame"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/ntb"
)

// inLane is a lane of a link, from the neighbour. Frames are taken in order, by the
// goroutine that calls drain: the lane's worker, or the one that finds room for a head
// that waited. Nothing blocks there.
type inLane struct {
	link  *Link
	index int
	slots []byte     // the queue, in this process' window; immutable
	words ntb.Window // the lane's words at the neighbour; immutable
	mine  []byte     // the lane's words here; immutable

	// next is the number of the expected frame. The lower half is its hop number. The
	// slot follows from all of it, since 2^32 need not be a multiple of the number of
	// slots. Stored under mu.
	next    atomic.Uint64
	blocked atomic.Bool // the head waits for room in another lane; stored under mu
	// forwards is set if the last frame was forwarded, or is about to be. Stored
	// under mu.
	forwards atomic.Bool
	draining atomic.Bool // the goroutine that holds mu calls pollOnward after it; stored under mu

	// mu guards the following. It is locked before an outLane's and a tunnel's.
	mu       lock.Mutex[lock.LaneIn]
	closed   bool            // the windows may be gone
	final    bool            // the link is down: frames that cannot go on at once are dropped
	answered uint32          // the neighbour's space arm that was answered
	frame    frame.Header    // header of the head
	copied   []byte          // of the head's body, where the queue's memory can go
	waits    *outLane        // where the head waits for its turn, or nil
	cached   [2]nextHopCache // by the route that the tunnel takes of two equal ones
	expected expectedFrames
	frames   uint64 // frames taken
	bytes    uint64

	arm   dataArm       // in words; the worker's and the guard's
	polls atomic.Uint32 // by goroutines that wait for what frames bring
	wake  chan struct{} // ends a rest of the worker; capacity 1
	wakes atomic.Uint64 // of the worker, by the neighbour
	rests atomic.Uint64 // of the worker

	yields atomic.Uint64 // of its worker
}

// nextHopCache is the next hop to host, the destination of the last frame that came from a
// member.
type nextHopCache struct {
	link    *Link
	host    int
	version uint32 // the router's version before the route was looked up
}

// expectedFrames is what is known of a neighbour that waited for room and was notified of
// it: that it has sent no frame since with number until or later.
type expectedFrames struct {
	on    bool
	until uint64
	lapse *time.Timer // ends it
}

// slot returns the slot of the expected frame with number next.
func (l *inLane) slot(next uint64) []byte {
	size := frame.HeaderBytes + l.link.opts.FrameBytes
	at := int((next-1)%uint64(l.link.opts.Slots)) * size
	return l.slots[at : at+size : at+size]
}

// ready reports whether the head is there and does not wait for room. It takes no lock.
func (l *inLane) ready() bool {
	next := l.next.Load()
	return !l.blocked.Load() && uint32(ntb.Load64(l.slot(next), 0)) == uint32(next)
}

// transitPending returns what is known of frames that are to be forwarded over another link. It
// never waits.
func (l *inLane) transitPending() expectation {
	if l.blocked.Load() {
		return expectNone
	}
	if !l.mu.TryLock() {
		if l.draining.Load() && l.forwards.Load() {
			return expectNow // the system may have stopped the goroutine that holds mu
		}
		return expectNone
	}
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return expectNone
	case l.ready():
		slot := l.slot(l.next.Load())
		kind, dst := frame.Kind(ntb.Load64(slot, 0)>>32), link.ID(ntb.Load64(slot, 8)>>32)
		if kind == frame.LinkState || dst.Host() == l.link.router.host {
			return expectNone
		}
		return expectNow
	case l.expected.on:
		return expectSoon
	}
	return expectNone
}

// expectFor is how long this process' own traffic leaves room for a neighbour that
// waited for room. The neighbour comes at once unless it is stopped or has changed
// its mind, and asks again each time. So this may be long.
const expectFor = 10 * time.Millisecond

// expect notes that the neighbour waited for room, so that more frames are expected
// to be forwarded. The caller holds mu.
func (l *inLane) expect() {
	if !l.forwards.Load() {
		return
	}
	w := &l.expected
	w.on, w.until = true, l.next.Load()
	for range l.link.opts.Slots {
		if uint32(ntb.Load64(l.slot(w.until), 0)) != uint32(w.until) {
			break
		}
		w.until++
	}
	if w.lapse == nil {
		w.lapse = time.AfterFunc(expectFor, l.lapsed)
	} else {
		w.lapse.Reset(expectFor)
	}
}

func (l *inLane) lapsed() {
	l.mu.Lock()
	l.expected.on = false
	l.mu.Unlock()
	l.pollOnward()
}

// pollOnward lets this process' own frames go on that yielded to frames of this lane. It
// is called after drain (pair S14, with outLane.run). The caller holds no locks of lanes
// or tunnels.
func (l *inLane) pollOnward() {
	if to := l.link.router.onward(l.link, 0); to != nil {
		to.out[l.index].poll()
	}
}

// drain takes the frames that have come, until one must wait for its turn. It takes at most a
// queueful, since the neighbour may store for ever. If frames came after the worker
// announced that it sleeps, the neighbour rings. drain reports whether it took any. The
// caller holds no locks of lanes or tunnels.
func (l *inLane) drain() (worked bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.draining.Store(true)
	defer l.draining.Store(false)
	l.blocked.Store(false)
	// A neighbour that waits for room is woken for several slots, not for each.
	batch := max(1, l.link.opts.Slots/2)
	taken := 0
	for !l.closed && taken < l.link.opts.Slots && l.take() {
		taken++
		if taken%batch == 0 {
			l.answer()
		}
	}
	if taken > 0 && !l.closed {
		l.answer()
	}
	return taken > 0
}

// take takes the next frame, if there is one and it need not wait. The caller holds mu.
func (l *inLane) take() bool {
	next := l.next.Load()
	slot := l.slot(next)
	first := ntb.Load64(slot, 0)
	if uint32(first) != uint32(next) {
		l.waitAt(nil) // the neighbour may have taken a head back
		return false
	}
	l.link.raceAcquire()
	if !frame.Read(slot, first, &l.frame) {
		l.waitAt(nil)
		l.link.fail(fmt.Errorf("%w in lane %d from %v", frame.BadError(first), l.index, l.link.id))
		l.blocked.Store(true)
		l.closed = true
		return false
	}
	body, there := l.body(slot)
	if !there {
		l.waitAt(nil)
		return false
	}
	what := l.route(&l.frame, body)
	for what == headHolds {
		ntb.Pause()
		runtime.Gosched()
		what = l.route(&l.frame, body)
	}
	if what == headWaits {
		l.blocked.Store(true)
		return false
	}
	l.waitAt(nil)
	l.release(next)
	return true
}

// body returns the body of the head, whose header was read. It reports false if the memory has gone, so that
// neither may be used, and the link soon goes down. The caller holds mu.
func (l *inLane) body(slot []byte) (body []byte, there bool) {
	body = slot[frame.HeaderBytes : frame.HeaderBytes+int(l.frame.Length)]
	v := l.link.caps.Revocable
	if v == nil {
		return body, true
	}
	l.copied = append(l.copied[:0], body...)
	return l.copied, !v.Gone()
}

// waitAt records the lane that the head waits for, nil for none, and leaves the one before. That
// changes when links or link states do, or when the neighbour stores another head. The caller holds mu.
func (l *inLane) waitAt(o *outLane) {
	if l.waits != nil && l.waits != o {
		l.waits.forget(waiter{lane: l})
	}
	l.waits = o
}

// release counts the head, which is frame number next, as taken, and gives its slot back. The
// caller holds mu.
func (l *inLane) release(next uint64) {
	l.frames++
	l.bytes += uint64(l.frame.Size())
	l.next.Store(next + 1)
	l.words.Publish32(laneCredit, uint32(next))
	if l.expected.on && next >= l.expected.until {
		l.expected.on = false
	}
}

// answer notifies the neighbour of room if it waits for some. The caller holds mu.
func (l *inLane) answer() {
	// This pairs with outLane.armSpace (pair S7).
	link.AfterStore(&l.link.caps)
	if arm := ntb.Load32(l.mine, laneSpaceArm); arm != l.answered {
		l.answered = arm
		l.link.dev.RingDoorbell(l.index)
		l.expect()
	}
}

// route delivers a frame, sends it on, or drops it. It returns headWaits or headHolds if the
// frame stays. The caller holds mu.
func (l *inLane) route(f *frame.Header, body []byte) result {
	r := l.link.router
	if forwards := f.Kind != frame.LinkState && f.Dst != r.node.id; forwards != l.forwards.Load() {
		l.forwards.Store(forwards)
	}
	f.Hops = min(f.Hops, r.opts.mostHops()) // the neighbour may have written any number
	switch {
	case f.Kind == frame.LinkState:
		r.receiveLinkState(l.link, f, body)
	case l.link.direction == Down:
		return l.enter(f, body)
	case f.Dst == r.node.id:
		r.deliver(l, f, body)
	case f.Src.Host() == r.host:
		r.drop(frame.DropUnknownNode)
	case f.Hops <= 1:
		r.drop(frame.DropHops)
	default:
		to := r.onward(l.link, f.Dst)
		if to == nil {
			why := frame.DropNoLink
			if f.Dst.Host() == r.host {
				why = frame.DropUnknownNode
			}
			r.drop(why)
			return headWent
		}
		return l.passOn(to, f, body, false)
	}
	return headWent
}

// passOn sends a frame on over a link, in its turn. own means that it is a member's. It returns
// headWent if the frame went or was dropped. The caller holds mu.
func (l *inLane) passOn(to *Link, f *frame.Header, body []byte, own bool) result {
	f.Hops--
	o := to.out[l.index]
	l.waitAt(o)
	what := o.forward(f, body, l, own)
	if what == headWaits || what == headHolds {
		f.Hops++
		return what
	}
	l.waits = nil
	switch what {
	case headDown:
		l.link.router.drop(frame.DropNoLink)
	case headStopped:
		l.link.router.drop(frame.DropStopped)
	}
	return headWent
}

// close is called when the link is down. It takes the frames that came before, as far
// as that is possible without waiting. These are a queueful at most, whatever the
// neighbour stores meanwhile.
func (l *inLane) close() {
	l.mu.Lock()
	l.final = true
	l.mu.Unlock()
	l.drain()
	l.mu.Lock()
	l.closed = true
	if l.expected.lapse != nil {
		l.expected.lapse.Stop()
	}
	l.mu.Unlock()
}

// sleep asks the neighbour to ring for the next frame, and reports whether there is none
// yet. The worker calls it before it sleeps. The guard calls it because the neighbour has
// rung for the previous arm. It pairs with outLane.Put (pair S6).
func (l *inLane) sleep() bool {
	l.arm.publish(&l.words)
	link.BeforeLook(l.link.dev, &l.link.caps)
	return !l.ready()
}

// dataArm is the data arm of a lane, at the neighbour. The word has one writer at a
// time: the lane's worker, or the guard. The lane's own lock is not for that: it is held
// while frames are taken.
type dataArm struct {
	mu lock.Mutex[lock.DataArm]
	n  uint32 // published last; guarded by mu
}

// publish increments the arm, so that the neighbour rings for the next frame.
func (a *dataArm) publish(words *ntb.Window) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.n++
	words.Publish32(laneDataArm, a.n)
}
