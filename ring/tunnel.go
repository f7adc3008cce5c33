package ring

import (
	"sync/atomic"
	"time"

	"github.com/ntbnet/ntbnet/internal/arq"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/ntb"
)

const (
	tunnelBells = 8
	tunnelSpads = 16
)

// tunnel is a bridge of frames to a process that is not at the other end of a cable.
// It implements ntb.Device. Stores are gathered in an open frame, which is sent at
// the next Publish. What is sent when, and again, is up to arq.
type tunnel struct {
	// Immutable.
	router *router
	remote link.ID
	epoch  uint32        // the same at both ends
	over   *linkKey      // of the link that another process asked for it over; nil: this process asked
	index  uint32        // its number here, given by the table
	down   chan struct{} // closed when the device goes down
	opened chan struct{} // closed when far is known

	far     farEnd  // constant after opened
	inbound inbound // what the other end stores, under a lock of its own

	state    atomic.Uint32 // the state of arq, for those who do not hold mu; stored under mu
	requests rerouteRequests
	heard    atomic.Pointer[inLane] // from which the last frame in sequence came; nil before the first
	via      atomic.Pointer[Link]   // nextHop's; stored under mu

	// mu guards the following. It is locked after an inLane's and an outLane's, before the
	// router's, and not while an inbound's is held.
	mu      lock.Mutex[lock.Tunnel]
	arq     arq.End
	late    backlog   // stores behind those that arq keeps
	writers turnQueue // those with data, that wait for room
	marks   arq.Marks // doorbells, a request and an answer that found no frame
	orders  orders
	nextHop nextHop
	timer   retransmitTimer // calls onRetransmitTimer
	err     error           // why the link went down, if there is more to say; constant then
}

// farEnd is the other end of a tunnel.
type farEnd struct {
	index uint32 // the tunnel's number there
	out   ntb.Window
}

var (
	_ ntb.Device = (*tunnel)(nil)
	_ ntb.Sink   = (*tunnel)(nil)
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
func newAnswerer(r *router, over linkKey, asked *frame) *tunnel {
	t := newTunnel(r, asked.src, asked.epoch)
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
func (o *Options) ackAt(f *frame) int { return min(o.Retention, int(f.ask)<<10) / 4 }

// window returns the size of the other end's window, from an open or an accept. It returns
// false if no process has such a window.
func (f *frame) window() (n int, ok bool) {
	n = int(f.arg) << 10
	return n, n >= link.MinWindow && n <= 1<<30
}

// meet sets what an open or an accept has of the other end.
func (t *tunnel) meet(f *frame) {
	n, _ := f.window()
	t.far = farEnd{index: f.from, out: ntb.SinkWindow(t, n)}
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
	if was == arq.Opening && s == arq.Up {
		close(t.opened)
	}
	if was < arq.Draining && s >= arq.Draining {
		close(t.down)
		t.orders.end()
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

// abort drops what was to be sent, since no process would get it. The caller holds mu.
func (t *tunnel) abort() {
	t.arq.Abort()
	t.changed()
}

// Caps implements ntb.Device. For all that is known, the other end's memory is not
// on this machine, and Order needs no fences.
func (t *tunnel) Caps() ntb.Caps {
	via := t.via.Load()
	return ntb.Caps{
		SameProcess: via != nil && via.caps.SameProcess,
		Backend:     "ring", Doorbells: tunnelBells, Scratchpads: tunnelSpads,
		Untrusted: true, // only hosts on the way could say whose process it is
		Sequenced: true, Watches: true, Paced: true, Delayed: true, Frames: t,
	}
}

func (t *tunnel) Inbound() []byte      { return t.inbound.memory.in }
func (t *tunnel) Outbound() ntb.Window { return t.far.out }

func (t *tunnel) Spad(i int) uint32 {
	if !t.LinkUp() {
		return link.Gone
	}
	return t.inbound.spads[i].Load()
}

func (t *tunnel) LinkUp() bool { return t.current() == arq.Up }

// WaitDoorbell implements ntb.Device. The caller's look comes after it (pair S10).
func (t *tunnel) WaitDoorbell(bit int) error {
	if err := t.linkError(); err != nil {
		return err
	}
	select {
	case <-t.inbound.bells[bit]:
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

func (t *tunnel) DMA(int) ntb.DMAChannel { panic("ring: a tunnel has no DMA channels") }

// Reclaim implements ntb.Device. The window is on the heap.
func (t *tunnel) Reclaim(int, int) error { return ntb.ErrNotSupported }

// Disable implements ntb.Device. What was sent before arrives before the other end
// sees it.
func (t *tunnel) Disable() {
	t.mu.Lock()
	defer t.unlockAndSend()
	t.flush()
	t.arq.Disable()
	t.push(time.Now())
}

// Close implements ntb.Device. It does not wait. What was sent, and the end itself,
// is sent again until it is acknowledged or arq.LingerFor has passed. Its connections have
// ended: what the other end sends later is answered with a reset.
func (t *tunnel) Close() error {
	t.closeSends()
	t.inbound.close()
	return nil
}

// closeSends is Close for what is sent.
func (t *tunnel) closeSends() {
	t.mu.Lock()
	defer t.unlockAndSend()
	t.flush()
	now := time.Now()
	t.arq.Close(now)
	t.push(now)
}
