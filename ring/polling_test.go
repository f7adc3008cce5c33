package ring

import (
	"reflect"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/frame"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/internal/tunnel"
	"github.com/ntbnet/ntbnet/internal/wait"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/stretchr/testify/require"
)

// waiting is a node in the middle of a line, with a tunnel to its left neighbour whose frames a
// waiter takes. It has no workers.
type waiting struct {
	*relay
	x        *tunnelEnd
	left     *Link
	sequence uint32
}

func newWaiting(t *testing.T) *waiting { return newWaitingWith(t, small(3)) }

func newWaitingWith(t *testing.T, o Options) *waiting {
	o.Topology = Line
	m := newMiddle(t, o, 0)
	t.Cleanup(m.close)
	r := m.n.router
	w := &waiting{relay: m, left: r.sides[Left].Load()}
	w.x = newAnswerer(r, linkKey{}, &frame.Header{
		Src: link.MakeID(1, 1), Epoch: 9, Arg: uint32(o.Window >> 10), Ask: uint32(o.Retention >> 10),
	})
	r.tunnels.add(w.x)
	w.x.goes(w.left)
	w.x.heard.Store(m.in)
	t.Cleanup(func() {
		w.x.Drop()
		w.x.Close()
	})
	return w
}

// worker returns the worker of the left lane, which polls for budget at first.
func (w *waiting) worker(budget time.Duration) *laneWorker {
	worker := w.left.worker(0)
	worker.spinner.Budget = budget
	return worker
}

// data stores a frame for the tunnel that publishes v at off, as the left neighbour.
func (w *waiting) data(off, v uint64) {
	body := publishes([2]uint64{off, v})
	w.sequence++
	w.f = frame.Header{
		Kind: frame.Data, Src: w.x.Remote, Dst: w.n.id, To: w.x.Index, Epoch: w.x.Epoch, Seq: w.sequence, Ack: 1,
		Hops: 3, Length: uint32(len(body)),
	}
	at := lanesAt + int(w.hop%uint64(w.o.Slots))*(frame.HeaderBytes+w.o.FrameBytes)
	w.from.Write(at+frame.HeaderBytes, body)
	w.f.Encode(&w.header)
	w.put()
}

// woken reports whether the worker was woken, and takes that back.
func (w *waiting) woken() bool {
	select {
	case <-w.in.wake:
		return true
	default:
		return false
	}
}

// A goroutine that waits takes the frames of its own link. Whatever would make it store for
// another neighbour is left to the worker, which is woken.
func TestAWaiterTakesTheFramesOfItsLink(t *testing.T) {
	w := newWaiting(t)
	r := w.n.router
	require.False(t, w.x.Poll(), "there is none")
	require.False(t, w.woken())
	for v := range uint64(5) {
		w.data(8, v+1)
		require.True(t, w.x.Poll())
		require.Equal(t, v+1, ntb.Load64(w.x.Inbound(), 8))
	}
	require.False(t, w.woken())

	leave := func(what string) {
		t.Helper()
		require.False(t, w.x.Poll(), what)
		require.True(t, w.woken(), what)
		require.True(t, w.in.ready(), what)
		require.True(t, w.in.drain(), "%s: the worker takes it", what)
		w.in.pollOnward()
	}
	w.x.via.Store(r.sides[Right].Load())
	w.data(8, 6)
	leave("a frame that is answered over the other link")
	require.EqualValues(t, 6, ntb.Load64(w.x.Inbound(), 8))
	w.x.via.Store(w.left)

	w.f = frame.Header{Kind: frame.Data, Src: link.MakeID(1, 1), Dst: link.MakeID(3, 1), Hops: 3}
	w.f.Encode(&w.header)
	w.put()
	leave("a frame for another node")
	require.EqualValues(t, 1, w.out.stats.fwdFrames)

	w.f = frame.Header{Kind: frame.Open, Src: link.MakeID(1, 1), Dst: w.n.id, Hops: 3}
	w.f.Encode(&w.header)
	w.put()
	leave("a frame of no tunnel")

	w.data(8, 7)
	w.in.close()
	require.EqualValues(t, 7, ntb.Load64(w.x.Inbound(), 8), "the end of the link takes what came")
	require.False(t, w.x.Poll(), "the memory may be gone")
	require.False(t, w.in.pollForWorker())
}

// vanished is memory that has gone.
type vanished struct{}

func (vanished) Gone() bool { return true }

// Neither a worker nor a waiter takes a frame from memory that has gone: it may be zeros.
func TestNobodyTakesFramesFromMemoryThatHasGone(t *testing.T) {
	w := newWaiting(t)
	w.left.caps.Revocable = vanished{}
	w.data(8, 1)
	require.False(t, w.x.Poll())
	require.False(t, w.in.drain())
	require.Zero(t, ntb.Load64(w.x.Inbound(), 8))
	w.left.caps.Revocable = nil
	require.True(t, w.x.Poll())
	require.EqualValues(t, 1, ntb.Load64(w.x.Inbound(), 8))
}

// A waiter that takes frames wakes the worker in two cases. Somebody waits for the credit of these
// frames, or own traffic waits until they have been sent on.
func TestAWaiterRousesTheWorker(t *testing.T) {
	w := newWaiting(t)
	back := w.left.out[0]
	back.waits.Store(true)
	w.from.Publish32(laneCredit, 1)
	require.False(t, w.x.Poll())
	require.True(t, w.woken(), "for credit")
	back.seen.Store(1)
	require.False(t, w.x.Poll())
	require.False(t, w.woken())

	w.out.waits.Store(true)
	require.False(t, w.x.Poll())
	require.False(t, w.woken(), "nothing has changed")
	w.data(8, 1)
	require.True(t, w.x.Poll())
	require.True(t, w.woken(), "for what waits in the lane that goes on")
}

// rung is a device that has ring called in place of its doorbells.
type rung struct {
	ntb.Device
	ring func()
}

func (d rung) RingDoorbell(int) { d.ring() }

// A frame that comes after the last look is found by the next one. The worker is not woken for it.
func TestAWaiterRousesNobodyForAFrameThatComesMeanwhile(t *testing.T) {
	o := small(3)
	o.Slots = 4 // it answers two frames at once, or what there is in the end
	w := newWaitingWith(t, o)
	rings := 0
	w.left.dev = rung{w.left.dev, func() {
		rings++
		w.data(8, 2)
	}}
	w.from.Publish32(laneSpaceArm, 1)
	w.data(8, 1)
	require.True(t, w.x.Poll())
	require.Equal(t, 1, rings)
	require.False(t, w.woken())
	require.True(t, w.x.Poll())
	require.EqualValues(t, 2, ntb.Load64(w.x.Inbound(), 8))
	require.False(t, w.woken())
}

// A worker, and what waits for its frames, let those run that store these: goroutines, where that is this
// process, and other processes.
func TestWaitsAreForThoseThatStoreTheFrames(t *testing.T) {
	w := newWaiting(t)
	yields := func() uintptr { return reflect.ValueOf(w.worker(0).spinner.Yield).Pointer() }
	require.Equal(t, reflect.ValueOf(runtime.Gosched).Pointer(), yields())
	require.True(t, w.x.Caps().SameProcess)
	w.left.caps.SameProcess = false // as between processes
	require.Equal(t, reflect.ValueOf(wait.Yield).Pointer(), yields())
	require.False(t, w.x.Caps().SameProcess)
}

// muted is a device whose doorbells get lost while mute is set.
type muted struct {
	ntb.Device
	mute *atomic.Bool
}

func (d muted) RingDoorbell(bit int) {
	if !d.mute.Load() {
		d.Device.RingDoorbell(bit)
	}
}

// The worker that polls takes what comes over the other side as well. That side's worker need not
// wake.
func TestAWorkerRelievesThatOfTheOtherSide(t *testing.T) {
	leak.Check(t)
	var mute atomic.Bool
	o := small(3)
	o.Topology = Line
	f := buildFabric(t, &fabric{o: o, wrap: func(host int, d Direction, dev ntb.Device) ntb.Device {
		if host == 3 {
			return muted{dev, &mute}
		}
		return dev
	}})
	x, y := f.tunnels(t, 1, 3)
	mute.Store(true)
	defer mute.Store(false)
	there, back := x.Outbound(), y.Outbound()
	back.Publish64(8, 77)
	for i, end := uint64(1), time.Now().Add(60*time.Second); ntb.Load64(x.Inbound(), 8) != 77; i++ {
		require.True(t, time.Now().Before(end))
		there.Publish64(0, i) // wakes the worker of the left link
		time.Sleep(time.Millisecond)
	}
}

// A worker rests while others poll its lane, and goes on when they have stopped.
func TestAWorkerRestsWhileOthersPoll(t *testing.T) {
	leak.Check(t)
	skipOnOneProcessor(t)
	o := small(2)
	o.Topology = Line
	f := newPlainFabric(t, o)
	x, y := f.tunnels(t, 1, 2)
	in := f.nodes[1].router.sides[Left].Load().in[0]
	there, send := x.Outbound(), uint64(0)
	exchange := func() {
		send++
		there.Publish64(8, send)
		for end := time.Now().Add(60 * time.Second); ntb.Load64(y.Inbound(), 8) != send; runtime.Gosched() {
			require.True(t, time.Now().Before(end))
		}
	}
	var over atomic.Bool
	var polling sync.WaitGroup
	polling.Go(func() {
		for !over.Load() {
			in.poll()
			runtime.Gosched()
		}
	})
	for end := time.Now().Add(60 * time.Second); in.rests.Load() == 0; exchange() {
		require.True(t, time.Now().Before(end))
	}
	over.Store(true)
	polling.Wait()
	for range 5 {
		exchange()
	}
}

// skipOnOneProcessor skips a test of what a worker does while it polls, which it does not on one processor.
func skipOnOneProcessor(t *testing.T) {
	t.Helper()
	if runtime.NumCPU() == 1 {
		t.Skip("no worker polls on one processor")
	}
}

// A worker that does not poll leaves its lane to that of the other side while that polls it, and does not ask the neighbour
// to ring.
func TestAWorkerLeavesItsLaneToTheOneThatPollsIt(t *testing.T) {
	w := newWaiting(t)
	worker, leader := w.worker(time.Nanosecond), w.n.router.sides[Right].Load().worker(0)
	require.False(t, worker.poll(true), "no worker polls this lane")

	leader.pollBoth()
	require.True(t, leader.pollsBoth)
	over := make(chan bool)
	go func() {
		defer close(over)
		for w.in.rests.Load() < 3 {
			w.in.polls.Add(1) // as the leader does
			time.Sleep(wait.Usual / 4)
		}
	}()
	for w.in.rests.Load() < 3 { // one ends where the leader is not seen to poll for a while
		require.True(t, worker.poll(true))
	}
	<-over
	leader.pollOwn()
	require.True(t, worker.poll(true), "it goes on when that one stops")
	require.False(t, worker.poll(true))
}

// The worker that polls both lanes does so also while its own has frames all the time.
func TestABusyWorkerPollsTheOtherLane(t *testing.T) {
	w := newWaiting(t)
	worker := w.worker(time.Minute)
	other := w.n.router.sides[Right].Load().in[0]
	require.False(t, worker.pollOther(), "it does not poll both")
	require.Zero(t, other.polls.Load())
	worker.pollBoth()
	for i := range uint64(100) {
		polls := other.polls.Load()
		w.data(8, i)
		worker.round()
		require.Greater(t, other.polls.Load(), polls)
	}
	worker.pollOwn()
	require.Len(t, other.wake, 1, "its worker goes on")
}

// A worker that leaves its lane to the other one notices the end of its link.
func TestTheEndOfALinkWakesItsWorker(t *testing.T) {
	w := newWaiting(t)
	w.left.dev.Disable()
	require.False(t, w.in.pollForWorker())
	require.Len(t, w.in.wake, 1)
}

// A worker whose link is down leaves the other side, which may have work for ever, to that one's
// worker. Otherwise the link would not end.
func TestAWorkerStopsWithItsLink(t *testing.T) {
	w := newWaiting(t)
	worker := w.worker(time.Hour)
	f := frame.Header{Kind: frame.Ack, Src: link.MakeID(3, 1), Dst: w.n.id, To: 99}
	var header [frame.HeaderBytes]byte
	f.Encode(&header)
	w.to.Write(lanesAt+8, header[8:])
	w.to.Publish64(lanesAt, f.First(1))
	w.left.dev.Disable()
	worker.poll(true)
	require.Zero(t, w.n.router.drops[frame.DropUnknownTunnel].Load())
	require.False(t, worker.pollsBoth)
	require.False(t, w.n.router.pollsBoth[0].Load())
}

// A worker that finds nothing sleeps, and one that finds something goes on after it has taken that.
func TestAWorkerPollsForAWhile(t *testing.T) {
	skipOnOneProcessor(t)
	w := newWaiting(t)
	worker := w.worker(wait.Usual)
	require.False(t, worker.poll(true))
	require.False(t, worker.pollsBoth)
	w.data(8, 1)
	worker = w.worker(wait.Usual)
	require.True(t, worker.poll(true))
	require.True(t, worker.pollsBoth)
	worker.pollOwn()
}

// How often a worker yields is counted, and so is when it sleeps and is woken.
func TestASnapshotCountsWhatAWorkerDoes(t *testing.T) {
	w := newWaiting(t)
	require.Zero(t, w.left.info().Yields)
	for end := time.Now().Add(60 * time.Second); w.left.info().Yields == 0; {
		require.True(t, time.Now().Before(end))
		w.worker(wait.Usual).poll(true)
	}

	w.in.wakes.Add(3)
	w.in.rests.Add(5)
	require.EqualValues(t, 3, w.left.info().Wakes)
	require.EqualValues(t, 5, w.left.info().Rests)
}

// oneFrame is a source with a single frame.
type oneFrame struct {
	f    frame.Header
	sent bool
}

func (s *oneFrame) Send(o tunnel.Lane) (int, bool) {
	if s.sent {
		return 0, false
	}
	s.sent = true
	o.Put(&s.f, nil)
	return s.f.Size(), false
}

// own is a source of this node's own traffic, which is ahead of what is forwarded.
func (w *waiting) own() *oneFrame {
	w.in.forwards.Store(true)
	w.out.mu.Lock()
	w.out.turns.lead = 1000
	w.out.mu.Unlock()
	return &oneFrame{f: frame.Header{Kind: frame.Ack, Src: w.n.id, Dst: link.MakeID(3, 1), Hops: 3}}
}

// Own traffic gives way to a goroutine that drains the other side's lane, and goes on afterwards.
// It does not give way to one that only polls it: that does not have it go on.
func TestOwnTrafficGivesWayToADrainAlone(t *testing.T) {
	w := newWaiting(t)
	s := w.own()
	w.in.mu.Lock() // as poll and pollForWorker
	w.out.Want(s)
	w.in.mu.Unlock()
	require.True(t, s.sent)

	w.to.Publish32(laneCredit, uint32(w.out.hop))
	s = w.own()
	w.in.mu.Lock() // as drain
	w.in.draining.Store(true)
	w.out.Want(s)
	require.False(t, s.sent)
	w.in.draining.Store(false)
	w.in.mu.Unlock()
	w.in.pollOnward()
	require.True(t, s.sent)
}

// A worker rests no longer than its link is up, although others poll its lane for ever.
func TestARestEndsWithTheLink(t *testing.T) {
	w := newWaiting(t)
	worker := w.worker(wait.Usual)
	over := make(chan bool)
	defer close(over)
	go func() {
		for {
			select {
			case <-over:
				return
			default:
				w.in.polls.Add(1)
			}
		}
	}()
	w.left.dev.Disable()
	worker.rest()
	require.EqualValues(t, 1, w.in.rests.Load())
}

// A worker does not sleep if it was woken when it did not rest, and a few polls of others do not
// make it rest.
func TestWhatAWorkerMakesOfOthersPolls(t *testing.T) {
	skipOnOneProcessor(t)
	w := newWaiting(t)
	worker := w.worker(wait.Usual)
	require.False(t, worker.poll(false))
	w.in.wakeWorker()
	require.True(t, worker.poll(false))
	require.False(t, worker.poll(false))

	w.in.polls.Add(restAfter - 1)
	require.False(t, worker.poll(false))
	require.Zero(t, w.in.rests.Load())

	var polling sync.WaitGroup
	polling.Go(func() {
		for w.in.rests.Load() == 0 { // a rest ends with the polls
			w.in.poll()
			runtime.Gosched()
		}
	})
	for w.in.rests.Load() == 0 {
		w.worker(time.Hour).poll(true)
	}
	polling.Wait()
}
