package ring

import (
	"runtime"
	"time"

	"github.com/ntbnet/ntbnet/internal/wait"
)

// A lane is polled while frames come, by one goroutine: its worker, that of the other side, or one
// that waits for what frames bring, in a Read perhaps. The latter has what it waits for without another
// thread being woken. The worker rests meanwhile, and the neighbour is not asked to ring. It goes on when the
// others have stopped: they have what they waited for, and do something else now.

// restAfter is after how many polls of others a worker rests. A goroutine that finds what
// it waits for sooner may do something else for long. Row: Hops.
const restAfter = 8

// laneWorker is the worker of a lane, for both directions: incoming frames, and credit for
// outgoing ones. It is the source of its own polls.
type laneWorker struct {
	in        *inLane
	out       *outLane
	spinner   wait.Spinner
	pollsBoth bool   // polls the lane of the other side as well
	found     bool   // its last poll has found work of the other side
	polls     uint32 // of others, when this worker last looked
}

// worker returns the worker of lane i.
func (l *Link) worker(i int) *laneWorker {
	polls := wait.Config{Budget: wait.Usual, Always: runtime.NumCPU() > 1}.ForFrames(l.caps.SameProcess)
	if l.opts.NoSpin {
		polls.Budget = 0
	}
	return &laneWorker{in: l.in[i], out: l.out[i], spinner: wait.NewSpinner(polls)}
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
		err := l.dev.WaitDoorbell(i)
		w.in.wakes.Add(1)
		if err != nil {
			l.fail(err)
			return
		}
	}
}

// round takes the frames that have come, and lets go on what waited. It reports whether it has taken
// frames, and whether there may be more to go on. A worker that polls both does the same for the other
// side's lane, also while its own always has frames.
func (w *laneWorker) round() (worked, more bool) {
	worked = w.in.drain() || w.found
	w.found = false
	w.in.pollOnward()
	more = w.out.pollSome()
	return w.pollOther() || worked, more
}

// poll polls the lane for a while, if it had work. It reports whether there is some. If not, the
// neighbour rings when there is.
func (w *laneWorker) poll(worked bool) bool {
	others := w.in.polls.Load() - w.polls
	if (worked || others > 0) && w.spinner.Budget > 0 {
		w.polls += others
		o := w.spinner.Spin(w)
		w.in.yields.Store(w.spinner.Counts().Yields)
		if o == wait.Hit {
			return true
		}
		w.pollOwn()
		if o == wait.Stopped {
			w.spinner.Relieved()
		}
		if o == wait.Stopped || o == wait.None && others >= restAfter || w.polledByOther() {
			w.rest()
			return true
		}
	}
	return !w.in.sleep() || w.out.roomCame() || w.woken()
}

// Ready implements wait.Source. What has come for the worker of the other side is taken at once, which may go on for ever, but ends
// with the link.
func (w *laneWorker) Ready() bool {
	w.pollBoth()
	w.found = w.in.link.dev.LinkUp() && w.pollOther()
	return w.found || w.in.ready() || w.out.roomCame()
}

// Stopped implements wait.Source.
func (w *laneWorker) Stopped() bool {
	return w.in.polls.Load()-w.polls >= restAfter || !w.in.link.dev.LinkUp()
}

// othersPoll reports whether other goroutines have polled the lane since this worker last looked.
func (w *laneWorker) othersPoll() bool { return w.in.polls.Load() != w.polls }

// woken reports whether a goroutine that polled has found work for this worker.
func (w *laneWorker) woken() bool {
	select {
	case <-w.in.wake:
		return true
	default:
		return false
	}
}

// polledByOther reports whether the worker of the other side polls this lane as well. Then the neighbour need
// not ring for what is found anyway.
func (w *laneWorker) polledByOther() bool {
	l := w.in.link
	return l.direction <= Right && l.router.pollsBoth[w.in.index].Load() &&
		l.router.sides[l.direction].Load() == l && l.dev.LinkUp()
}

// rest waits until no other goroutine polls the lane, one needs the worker, or the link is down.
func (w *laneWorker) rest() {
	for first := true; first || w.othersPoll() && w.in.link.dev.LinkUp(); first = false {
		w.polls = w.in.polls.Load()
		w.in.rests.Add(1)
		select {
		case <-w.in.wake:
			w.polls = w.in.polls.Load()
			return
		case <-time.After(wait.ManyTimes * wait.Usual):
		}
	}
}

// pollBoth makes w the worker that polls the lane of the other side as well, unless that one's does.
func (w *laneWorker) pollBoth() {
	l := w.in.link
	if !w.pollsBoth && l.direction <= Right {
		both := &l.router.pollsBoth[w.in.index]
		w.pollsBoth = !both.Load() && both.CompareAndSwap(false, true)
	}
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

// wakeWorker ends a rest of the worker.
func (l *inLane) wakeWorker() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}
