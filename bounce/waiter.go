package bounce

import (
	"sync/atomic"
	"time"

	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/wait"
	"github.com/ntbnet/ntbnet/ntb"
)

// half is a reader or a writer, as its waiter sees it. The caller holds the half's lock.
type half interface {
	wait.Source
	// arm announces to the peer that we are about to sleep, where it does not see that.
	arm()
	// publishArm publishes the present arm word again with the given low bits. Without
	// armedBit this takes the arm back. With parkingBit the peer still fences.
	publishArm(bits uint32)
	// line returns the number of the 64-byte line in which the next word for the half is
	// published, besides its control block.
	line() int
	// beforeSleep is called before each sleep.
	beforeSleep()
}

// waiter is where the goroutine that holds a half's lock waits.
type waiter struct {
	// Immutable after init.
	half    half
	source  wait.Source // half, or what polls for it
	control *control
	opts    *Options

	signal
	deadline deadline
	parked   atomic.Bool // stored before the re-check; the waker loads it after the event (pair S13)

	// The half's lock guards the following.
	spinner wait.Spinner
	limit   time.Duration // of the wait under way; 0 for none
	soon    *time.Timer   // for sleepAtMost; made when first needed
	fenced  bool          // the peer knows by parkingBit that we park, and fences from then on
	watch   link.Watch    // over frames
	parks   uint64
	rung    uint64 // doorbells of the link, when the last wait began
}

func (w *waiter) init(h half, c *control, o *Options) {
	w.half, w.control, w.opts = h, c, o
	w.wake = make(chan struct{}, 1)
	w.watch.Wake = w.notify
	w.deadline.signal = &w.signal
	w.source = h
	w.rung = c.peer.Rung()
	caps := c.peer.Caps()
	spins := wait.Config{Budget: o.Spin, Remote: caps.RemoteCPU, Thread: onThreads}
	if c.frames != nil {
		w.source = &framePoller{h, c.frames}
		spins.Budget *= wait.ManyTimes
		spins = spins.ForFrames(caps.SameProcess)
	}
	w.spinner = wait.NewSpinner(spins)
}

// onThreads is set where threads of C make the calls.
var onThreads bool

// OnThreads says that threads of C make the calls of this process. It is called before the first connection.
func OnThreads() { onThreads = true }

// takeTurns has the waits take turns with those of other readers. It follows init.
func (w *waiter) takeTurns() {
	if w.control.frames == nil && !w.control.peer.Caps().RemoteCPU {
		w.spinner.Join(w.opts.Queue, w.wake)
	}
}

// wait returns when there may be something to do: data or room, a reason to stop,
// or nothing at all. The caller holds the half's lock and checks again.
//
// The order is: spin, arm, order, re-check, park. Arming is a word in the peer's
// memory. After Order, either the peer has seen it before it publishes what we wait
// for, and then notifies us, or we see here what it published (pair S1 for data, S2
// for room).
func (w *waiter) wait() {
	if w.half.Stopped() || w.half.Ready() {
		return
	}
	if w.spin() {
		return
	}
	defer w.spinner.Parks()()
	w.parked.Store(true) // pair S13, with Notified
	defer w.parked.Store(false)
	w.half.arm()
	if w.control.frames != nil {
		w.watchLines()
		return
	}
	look := w.limit
	if unsure := w.order(); unsure && look == 0 {
		look = wait.LookAgain
	}
	if w.half.Ready() || w.half.Stopped() {
		w.half.publishArm(parkingBit)
		return
	}
	w.sleepAtMost(look)
	switch {
	case w.half.Ready():
	case w.stop.Load() != 0:
		// The peer may ring once without need. To prevent that would take a store, which
		// must not hold up a call that has to stop.
		w.spinner.Miss()
	default:
		w.half.publishArm(parkingBit) // so that the peer does not ring without need
	}
}

// waitAtMost waits until the half is ready or stopped, or for d, and reports whether it is ready.
func (w *waiter) waitAtMost(d time.Duration) bool {
	defer func() { w.limit = 0 }()
	for end := time.Now().Add(d); !w.half.Ready(); w.wait() {
		if w.limit = time.Until(end); w.limit <= 0 || w.half.Stopped() {
			return false
		}
	}
	return true
}

// spin polls for a while, or sleeps until others that poll give it a turn. It reports whether to
// check again rather than park.
func (w *waiter) spin() bool {
	if rung := w.control.peer.Rung(); rung != w.rung {
		w.rung = rung
		w.spinner.Rang()
	}
	o := w.spinner.Spin(w.source)
	if o == wait.Queued && w.limit == 0 { // a turn may be long in coming
		o = w.takeTurn()
	}
	return o == wait.Hit || o == wait.Stopped
}

// takeTurn waits for a turn. The peer need not know of it: the polls of others find what
// the wait is for, and what it announces wakes the wait as if that had parked.
func (w *waiter) takeTurn() wait.Outcome {
	w.half.beforeSleep()
	w.parked.Store(true) // pair S13, with Notified
	defer w.parked.Store(false)
	return w.spinner.TakeTurn(w.half)
}

// watchLines is the end of wait where frames lead to the peer. What the peer publishes
// is seen to arrive. So a reader need not arm, which would cost a frame, nor wait until
// the peer knows, which would cost a round trip.
func (w *waiter) watchLines() {
	w.watch.Lines = [2]int{w.control.slot, w.half.line()} // a control block is one line, with the number of its slot
	w.control.frames.Watch(&w.watch)
	defer w.control.frames.Unwatch(&w.watch)
	w.rest()
	for again := true; again && !w.half.Ready() && !w.half.Stopped(); again = w.limit == 0 {
		w.sleepAtMost(w.limit)
	}
	if w.stop.Load() != 0 {
		w.spinner.Miss()
	}
}

// rest ends the polls of frames, before sleep.
func (w *waiter) rest() {
	if w.opts.Spin > 0 {
		w.control.frames.Rest()
	}
}

// sleep waits for a token. The next check comes after it (pair S9).
func (w *waiter) sleep() {
	w.parks++
	w.half.beforeSleep()
	<-w.wake
}

// sleepAtMost is sleep, but returns after d if that is not 0.
func (w *waiter) sleepAtMost(d time.Duration) {
	switch {
	case d == 0:
		w.sleep()
		return
	case w.soon == nil:
		w.soon = time.AfterFunc(d, w.notify)
	default:
		w.soon.Reset(d)
	}
	w.sleep()
	w.soon.Stop()
}

// counts returns the counters.
func (w *waiter) counts() waitCounts {
	return waitCounts{w.spinner.Counts(), w.parks}
}

// interrupted reports whether there is a reason to stop, after a look at what the peer
// has announced.
func (w *waiter) interrupted() bool {
	if w.control.peer.Pending() {
		w.control.peer.Poll()
	}
	return w.stop.Load() != 0
}

// order comes between arming and the re-check. The first time, and on a bridge each
// time, the device must order both sides' stores (pairs S1 and S2). Where memory is
// coherent, once the peer certainly knows that we park, it fences after each publish,
// and a fence here is enough (pair S3). order reports whether to check once more after
// a while: Linux leaves out a processor on which a thread of the publisher's process
// has ended, until another process runs there (internal/testing/litmus has the details). What
// that thread has stored is visible long before that.
func (w *waiter) order() (unsure bool) {
	if w.fenced {
		ntb.Fence()
		return false
	}
	w.control.peer.Order()
	w.fenced = w.control.peer.Caps().Coherent && !w.control.fence
	return w.fenced
}

// framePoller polls a half, and between polls takes the frames that have come for this process.
type framePoller struct {
	half
	frames link.Frames
}

func (t *framePoller) Ready() bool {
	if t.half.Ready() {
		return true
	}
	t.frames.Poll()
	return t.half.Ready()
}
