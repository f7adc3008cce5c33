package ring

import (
	"time"

	"github.com/ntbnet/ntbnet/internal/arq"
	"github.com/ntbnet/ntbnet/internal/wait"
	"github.com/ntbnet/ntbnet/ntb"
)

// A lane is polled while frames come, by one goroutine: its worker, or one that waits for what
// frames bring, in a Read perhaps. The latter has what it waits for without another thread
// being woken. The worker rests meanwhile. It goes on when the others have stopped: they have
// what they waited for, and do something else now. A lane whose neighbour is not asked to ring
// has a worker that polls or rests.

const (
	// pollFor is how long a worker polls before it sleeps, after it had work. It polls for
	// mostPoll if its last sleep was shorter than that. Each time that nothing came halves the
	// time, down to leastPoll.
	pollFor   = 50 * time.Microsecond
	mostPoll  = 200 * time.Microsecond
	leastPoll = 10 * time.Microsecond
	// restFor is how long a worker rests until it looks whether others have polled meanwhile. If
	// they have, it rests twice as long, up to mostRest.
	restFor  = 100 * time.Microsecond
	mostRest = time.Millisecond
	// restAfter is after how many polls of others a worker rests. A goroutine that finds what
	// it waits for sooner may do something else for long.
	restAfter = 8
	// polledGuard is how long a worker leaves its lane to the other side's worker before it looks again.
	// It is woken when that worker stops polling the lane, so this is for links that change meanwhile.
	polledGuard = 100 * time.Millisecond
)

// laneWorker is the worker of a lane, for both directions: incoming frames, and credit for
// outgoing ones.
type laneWorker struct {
	in        *inLane
	out       *outLane
	spins     bool
	offers    *wait.Offers  // how it polls
	pollsBoth bool          // polls the lane of the other side as well
	polls     uint32        // of others, when this worker last looked
	budget    time.Duration // of polls
	gave      time.Time     // when other goroutines last had a chance to run; zero after a sleep
	timer     *time.Timer
}

// worker returns the worker of lane i.
func (l *Link) worker(i int) *laneWorker {
	return &laneWorker{
		in: l.in[i], out: l.out[i], spins: !l.opts.NoSpin, offers: wait.Frames(l.caps.SameProcess), budget: pollFor,
	}
}

// work is the goroutine of lane i.
func (l *Link) work(i int) {
	defer func() {
		if l.workers.Add(-1) == 0 {
			close(l.idle)
		}
	}()
	w := l.worker(i)
	for {
		worked, more := w.round()
		if l.dev.LinkUp() && (more || w.poll(worked)) {
			continue
		}
		w.pollOwn()
		if err := w.sleep(i); err != nil {
			l.fail(err)
			return
		}
	}
}

// round takes the frames that have come, and lets go on what waited. It reports whether it has taken
// frames, and whether there may be more to go on. A worker that polls both does the same for the other
// side's lane, also while its own always has frames.
func (w *laneWorker) round() (worked, more bool) {
	worked = w.in.drain()
	w.in.pollOnward()
	more = w.out.pollSome()
	w.pollOther()
	return worked, more
}

// sleep waits until the neighbour rings.
func (w *laneWorker) sleep(i int) error {
	begin := time.Now()
	w.gave = time.Time{}
	err := w.in.link.dev.WaitDoorbell(i)
	w.in.wakes.Add(1)
	if time.Since(begin) < mostPoll {
		w.budget = mostPoll
	}
	return err
}

// poll polls the lane for a while, if it had work. It reports whether there is some. If not, the
// neighbour rings when there is.
func (w *laneWorker) poll(worked bool) bool {
	if w.spins && (worked || w.in.polls.Load() != w.polls) && w.pollLane() {
		return true
	}
	return !w.in.sleep() || w.out.roomCame() || w.woken()
}

// woken reports whether a goroutine that polled has found work for this worker.
func (w *laneWorker) woken() bool {
	select {
	case <-w.in.wake:
		return true
	default:
		return false
	}
}

// pollLane polls until a frame or credit comes, or the budget is spent.
func (w *laneWorker) pollLane() bool {
	polls := w.offers.Begin(w.budget, 0)
	defer func() {
		w.gave = polls.Gave()
		polls.End()
	}()
	polls.Leave()
	polls.GaveAt(w.gave)
	polls.CountIn(&w.in.offers)
	w.pollBoth()
	w.polls = w.in.polls.Load()
	for w.in.link.dev.LinkUp() { // the other side's may have work for ever
		if w.in.polls.Load()-w.polls >= restAfter {
			polls.End()
			polls = wait.Polls{}
			w.pollOwn()
			w.rest()
			return true
		}
		if w.in.ready() || w.out.roomCame() {
			return true
		}
		if w.pollOther() {
			polls.Again()
		}
		if !polls.Due() {
			ntb.Pause()
		} else if !polls.Offer() {
			if polls.Refused() && w.polledByOther() {
				polls.End()
				polls = wait.Polls{}
				w.restPolled()
				return true
			}
			w.budget = max(w.budget/2, leastPoll)
			break
		}
	}
	w.pollOwn()
	return false
}

// polledByOther reports whether the worker of the other side polls this lane as well. Then the neighbour need
// not ring for what is found anyway.
func (w *laneWorker) polledByOther() bool {
	l := w.in.link
	return !w.pollsBoth && l.direction <= Right && l.router.pollsBoth[w.in.index].Load() &&
		l.router.sides[l.direction].Load() == l && l.dev.LinkUp()
}

// restPolled waits until the worker of the other side stops polling this lane, or the link is down.
func (w *laneWorker) restPolled() {
	w.startTimer(polledGuard)
	w.in.rests.Add(1)
	select {
	case <-w.in.wake:
	case <-w.timer.C:
	}
	w.polls = w.in.polls.Load()
}

// startTimer has the timer go off after d.
func (w *laneWorker) startTimer(d time.Duration) {
	if w.timer == nil {
		w.timer = time.NewTimer(d)
		return
	}
	w.timer.Reset(d)
}

// pollBoth makes w the worker that polls the lane of the other side as well, unless that one's does.
func (w *laneWorker) pollBoth() {
	l := w.in.link
	w.pollsBoth = w.pollsBoth || l.direction <= Right && l.router.pollsBoth[w.in.index].CompareAndSwap(false, true)
}

// pollOwn ends pollBoth. The worker of the other lane goes on, if it rests.
func (w *laneWorker) pollOwn() {
	if !w.pollsBoth {
		return
	}
	w.pollsBoth = false
	w.in.link.router.pollsBoth[w.in.index].Store(false)
	if o := w.otherLane(); o != nil {
		o.wakeWorker()
	}
}

// otherLane returns the lane of the other side, or nil if there is no link.
func (w *laneWorker) otherLane() *inLane {
	l := w.in.link
	o := l.router.sides[l.direction.opposite()].Load()
	if o == nil {
		return nil
	}
	return o.in[w.in.index]
}

// pollOther does what the worker of the other side would do, if w polls both. It reports whether there
// was something.
func (w *laneWorker) pollOther() bool {
	if !w.pollsBoth {
		return false
	}
	o := w.otherLane()
	return o != nil && o.pollForWorker()
}

// rest waits until no other goroutine polls the lane, one needs the worker, or the link is down.
func (w *laneWorker) rest() {
	for d := restFor; w.in.polls.Load() != w.polls && w.in.link.dev.LinkUp(); d = min(2*d, mostRest) {
		w.polls = w.in.polls.Load()
		w.startTimer(d)
		w.in.rests.Add(1)
		select {
		case <-w.in.wake:
			w.polls = w.in.polls.Load()
			return
		case <-w.timer.C:
		}
	}
}

// pollForWorker does what the lane's worker would do, on the worker of the other side, unless another
// goroutine is doing that.
func (l *inLane) pollForWorker() (worked bool) {
	l.polls.Add(1)
	if !l.link.dev.LinkUp() {
		l.wakeWorker() // its worker ends
		return false
	}
	if !l.mu.TryLock() {
		return false
	}
	ready := !l.closed && !l.final && l.ready()
	l.mu.Unlock()
	if ready {
		worked = l.drain()
		l.pollOnward()
	}
	if out := l.link.out[l.index]; out.creditCame() {
		worked = true
		out.poll()
	}
	return worked
}

// wakeWorker ends a rest of the worker.
func (l *inLane) wakeWorker() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// poll takes frames on a goroutine that waits for what they bring, unless another one is doing
// that. It takes those alone that are for this process and whose answers go back over the link. So
// the caller stores nothing for other neighbours, which might keep it. It reports whether it has
// taken any.
func (l *inLane) poll() (worked bool) {
	l.polls.Add(1)
	if !l.mu.TryLock() {
		return false
	}
	defer l.mu.Unlock()
	if l.closed || l.final {
		return false
	}
	batch := max(1, l.link.opts.Slots/2) // as drain does
	taken, left := 0, false
	for taken < l.link.opts.Slots {
		var took bool
		if took, left = l.takeOwn(); !took {
			break
		}
		if taken++; taken%batch == 0 {
			l.answer()
		}
	}
	if worked = taken > 0; worked {
		l.answer()
	}
	to := l.link.router.onward(l.link, 0)
	if left || l.link.out[l.index].roomCame() || worked && to != nil && to.out[l.index].waits.Load() {
		l.wakeWorker()
	}
	return worked
}

// takeOwn is take for a frame of this process that comes over the link by which it is answered.
// left reports whether there is another one, which the worker has to take. The caller holds mu.
func (l *inLane) takeOwn() (took, left bool) {
	next := l.next.Load()
	slot := l.slot(next)
	first := ntb.Load64(slot, 0)
	if uint32(first) != uint32(next) || l.blocked.Load() {
		return false, false
	}
	l.link.raceAcquire()
	if !readFrame(slot, first, &l.frame) {
		return false, true
	}
	f := &l.frame
	if kind := arq.Kind(f.kind); f.dst != l.link.router.node.id || kind != arq.Data && kind != arq.Ack {
		return false, true
	}
	t := l.link.router.tunnels.get(f.to)
	if t == nil || t.epoch != f.epoch || t.remote != f.src || t.via.Load() != l.link {
		return false, true
	}
	body, there := l.body(slot)
	if !there {
		return false, false
	}
	l.waitAt(nil)
	l.forwards.Store(false)
	l.link.router.deliver(l, f, body)
	l.release(next)
	return true, false
}

// Poll implements ntb.Frames.
func (t *tunnel) Poll() bool {
	l := t.heard.Load()
	return l != nil && l.poll()
}

// Rest implements ntb.Frames.
func (t *tunnel) Rest() {
	if l := t.heard.Load(); l != nil {
		l.wakeWorker()
	}
}
