package ring

import (
	"sync/atomic"
	"time"

	"github.com/ntbnet/ntbnet/internal/arq"
	"github.com/ntbnet/ntbnet/internal/frame"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/ntb"
)

// tunnel is a path of frames to a process that is not at the other end of a cable.
// It implements link.Frames. Stores are gathered in an open frame, which is sent at
// the next Publish. What is sent when, and again, is up to arq.
type tunnel struct {
	// Immutable.
	router *router
	remote link.ID
	epoch  uint32        // the same at both ends
	over   *linkKey      // of the link that another process asked for it over; nil: this process asked
	index  uint32        // its number here, given by the table
	down   chan struct{} // closed when the device goes down
	opened chan struct{} // closed when the other end is known to be there

	far     farEnd  // constant once up
	inbound inbound // what the other end stores, under a lock of its own

	state    atomic.Uint32 // the state of arq, for those who do not hold mu; stored under mu
	requests rerouteRequests
	heard    atomic.Pointer[inLane] // from which the last frame in sequence came; nil before the first
	via      atomic.Pointer[Link]   // nextHop's; stored under mu

	// mu guards the following. It is locked after an inLane's and an outLane's, before the
	// router's, and not while an inbound's is held.
	mu         lock.Mutex[lock.Tunnel]
	arq        arq.End
	late       backlog     // stores for which arq has no room yet, in their order
	writers    turnQueue   // those with data, that wait for room
	deliveries []*delivery // calls of Arrived that wait; first those whose stores are all in frames
	nextHop    nextHop
	timer      retransmitTimer // calls onRetransmitTimer
	err        error           // why the link went down, if there is more to say; constant then
}

// farEnd is the other end of a tunnel.
type farEnd struct {
	index uint32 // the tunnel's number there
	out   ntb.Window
}

var (
	_ link.Frames = (*tunnel)(nil)
	_ ntb.Sink    = (*tunnel)(nil)
)

// maxUnsent is how many frames wait for the lane at most before data waits for its
// turn. More would only delay what is stored next, such as the peer's credit, behind a
// megabyte of data in a busy lane of small slots.
const maxUnsent = 16

// maxFrames limits the frames without acknowledgement, whatever their size.
const maxFrames = 1 << 12

// newAsker returns the end of a tunnel that this process asks another one for.
func newAsker(r *router, remote link.ID) *tunnel {
	t := newTunnel(r, remote, link.NewEpoch())
	t.arq = arq.Asker(r.opts.arq(), time.Now())
	return t
}

// newAnswerer returns the end of a tunnel that another process has asked for over a link. asked
// is the frame by which it did.
func newAnswerer(r *router, over linkKey, asked *frame.Header) *tunnel {
	t := newTunnel(r, asked.Src, asked.Epoch)
	t.over = &over
	c := r.opts.arq()
	c.AckAt = r.opts.ackAt(asked)
	t.arq = arq.Answerer(c)
	t.meet(asked)
	t.changed()
	return t
}

func newTunnel(r *router, remote link.ID, epoch uint32) *tunnel {
	t := &tunnel{
		router: r, remote: remote, epoch: epoch,
		down: make(chan struct{}), opened: make(chan struct{}),
	}
	t.inbound.init(r.opts.Window)
	t.timer.f = t.onRetransmitTimer
	return t
}

// arq returns how a tunnel keeps frames.
func (o *Options) arq() arq.Config {
	return arq.Config{Buf: ntb.AlignedBytes(o.Retention), Frames: maxFrames, AckAt: o.Retention / 4}
}

// ackAt returns how much is acknowledged at once when it is owed: a quarter of what either
// end keeps. f is an open or an accept.
func (o *Options) ackAt(f *frame.Header) int { return min(o.Retention, int(f.Ask)<<10) / 4 }

// meet sets what an open or an accept has of the other end.
func (t *tunnel) meet(f *frame.Header) {
	n, _ := f.Window()
	t.far = farEnd{index: f.From, out: ntb.SinkWindow(t, n)}
}

func (t *tunnel) current() arq.State { return arq.State(t.state.Load()) }

// changed makes the state of arq known, and does what its change asks for. The caller holds
// mu.
func (t *tunnel) changed() {
	was, s := t.current(), t.arq.State()
	if was == s {
		return
	}
	t.state.Store(uint32(s)) // first, since goroutines that wake must find it
	if was < arq.Draining && s >= arq.Draining {
		close(t.down)
		for _, w := range t.writers {
			w.Wake()
		}
		t.router.forget(t)
	}
	if s.Over() {
		t.late.clear()
	}
	if s == arq.Closed {
		t.timer.stop()
		t.router.tunnels.remove(t)
	}
}

// drop drops what was to be sent, since no process would get it. The caller holds mu.
func (t *tunnel) drop(time.Time) { t.arq.Abort() }

// Caps implements link.Path.
func (t *tunnel) Caps() ntb.Caps {
	via := t.via.Load()
	return ntb.Caps{
		Backend: "ring", SameProcess: via != nil && via.caps.SameProcess,
		Untrusted: true, // only hosts on the way could say whose process it is
	}
}

func (t *tunnel) Inbound() []byte      { return t.inbound.memory.in }
func (t *tunnel) Outbound() ntb.Window { return t.far.out }

func (t *tunnel) LinkUp() bool { return t.current() == arq.Up }

// Park implements link.Path: the other end always wakes this one.
func (t *tunnel) Park() {}

// Wait implements link.Path. The caller's look comes after it (pair S10).
func (t *tunnel) Wait() error {
	if err := t.linkError(); err != nil {
		return err
	}
	select {
	case <-t.inbound.woken:
	case <-t.down:
	}
	return t.linkError()
}

func (t *tunnel) linkError() error {
	switch s := t.current(); {
	case s == arq.Lingering || s == arq.Closed:
		return ntb.ErrClosed
	case s < arq.Draining:
		return nil
	case t.err != nil:
		return t.err
	}
	return ntb.ErrLinkDown
}

// Disable implements link.Path. What was sent before arrives before the other end
// sees it.
func (t *tunnel) Disable() {
	t.step(func(time.Time) {
		t.flush()
		t.arq.Disable()
	})
}

// Close implements link.Path. It does not wait. What was sent, and the end itself,
// is sent again until it is acknowledged or arq.LingerFor has passed. Its connections have
// ended: what the other end sends later is answered with a reset.
func (t *tunnel) Close() error {
	t.step(func(now time.Time) {
		t.flush()
		t.arq.Close(now)
	})
	t.inbound.close()
	return nil
}
