package ring

import (
	"sync/atomic"
	"time"

	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/ntb"
)

const (
	tunnelBells = 8
	tunnelSpads = 16
)

// tunnelState is the state of a tunnel's device. It only grows.
type tunnelState uint32

const (
	tunnelOpening tunnelState = iota // the other end has not answered
	tunnelUp
	tunnelDown   // disabled here, closed there, or unreachable
	tunnelClosed // closed here
)

func (s tunnelState) String() string { return [...]string{"opening", "up", "down", "closed"}[s&3] }

// tunnel is a bridge of frames to a node that is not at the other end of a cable.
// It implements ntb.Device. Stores are gathered in an open frame, which is sent at
// the next Publish. Sent frames are kept until the other end has acknowledged them,
// so that they can be sent again by another way.
type tunnel struct {
	// Immutable.
	router *router
	remote link.ID
	index  uint32 // its number here
	epoch  uint32 // the same at both ends
	lane   int
	asked  bool          // this node made it
	over   linkKey       // of the link that another one asked for it over
	down   chan struct{} // closed with tunnelDown
	opened chan struct{} // closed when the other end's number and window are known

	state atomic.Uint32 // a tunnelState; stored under mu

	stirs  atomic.Uint32 // calls of stir that settle has not handled; the first starts settle
	probes atomic.Bool   // one of them asks for a probe of the other end

	// The end that receives.
	spads   [tunnelSpads]atomic.Uint32 // stored by the lane's worker
	bells   [tunnelBells]chan struct{} // capacity 1
	expect  atomic.Uint32              // sequence number expected; stored under rmu
	rmu     lock.Mutex[lock.Receive]   // held while a frame is stored
	memory  sinkMemory                 // guarded by rmu
	in      []byte                     // the same memory, for Inbound; nil after Close
	gone    bool                       // in may not be accessed any more; guarded by rmu
	watched watches                    // guarded by rmu
	got     uint64                     // frames taken; guarded by rmu
	// toAnswer is the order of the last frame that asked for one; stored under rmu,
	// in the order of the frames.
	toAnswer atomic.Uint32

	mu      lock.Mutex[lock.Tunnel] // locked after an inLane's, before an outLane's and the router's
	out     ntb.Window              // constant after opened
	to      uint32                  // its number at the other end; constant after opened
	kept    retention               // guarded by mu
	late    backlog                 // stores behind those of kept; guarded by mu
	line    line                    // writers with data that wait for room; guarded by mu
	base    uint32                  // sequence number of the first frame kept; guarded by mu
	next    int                     // of the frames kept, the next to be sent; guarded by mu
	high    int                     // of the frames kept, the first that was never sent; guarded by mu
	link    *Link                   // first link of the way; nil if there is none; guarded by mu
	way     Direction               // side that frames take from this host; guarded by mu
	made    uint64                  // identifies the links of the way, see router.madeLocked; guarded by mu
	cut     time.Time               // since when there is no way; guarded by mu
	resends uint32                  // path: how often it began again; guarded by mu
	bell    uint32                  // doorbells that found no frame; guarded by mu

	sayOpen, sayAccept, sayAck bool   // frames to be sent out of sequence; guarded by mu
	sayClose                   bool   // the last frame is to be sent; guarded by mu
	closeSent                  bool   // since frames were last sent from the beginning; guarded by mu
	heard                      bool   // the other end is up as well; guarded by mu
	ended                      bool   // nothing more is sent or expected; guarded by mu
	owed                       int    // bytes not acknowledged to the other end; guarded by mu
	ackAt                      int    // value of owed that makes an acknowledgement of its own; guarded by mu
	orders                     orders // guarded by mu
	ask                        uint32 // the last of them, to be requested when a frame is free; guarded by mu
	answer                     uint32 // request to be answered when a frame is free; guarded by mu

	silent   time.Time     // since when the other end has acknowledged nothing of what is kept; guarded by mu
	progress time.Time     // last acknowledgement, or when the first frame that waits for one was sent; guarded by mu
	patience time.Duration // how long without one before frames are sent again; guarded by mu
	trip     roundTrip     // guarded by mu
	guarding bool          // guard is set; guarded by mu
	guardAt  time.Time     // for when; guarded by mu
	guard    *time.Timer   // calls timeout; guarded by mu
	acking   bool          // acker is set; guarded by mu
	acker    *time.Timer   // guarded by mu

	closedAt time.Time // when Close was called; guarded by mu

	err   error       // why the link went down, if there is more to say; constant then
	stats tunnelStats // guarded by mu
}

type tunnelStats struct{ sent, sentBytes, resent uint64 }

var (
	_ ntb.Device = (*tunnel)(nil)
	_ ntb.Sink   = (*tunnel)(nil)
)

// Times of a tunnel.
const (
	resendFirst = 200 * time.Millisecond // without progress
	resendMost  = 3200 * time.Millisecond
	openEvery   = 50 * time.Millisecond
	ackDelay    = 5 * time.Millisecond
	// closedLimit is how long a closed tunnel waits for the other end to acknowledge that.
	// Its connections have ended. What the other end sends later is answered with a reset.
	closedLimit = 30 * time.Second
)

// maxUnsent is how many frames wait for the lane at most before data waits for its
// turn. More would only delay what is stored next, such as the peer's credit, behind a
// megabyte of data in a busy lane of small slots.
const maxUnsent = 16

func alignedBytes(n int) []byte { return ntb.AlignedBytes(n) }

func newTunnel(r *router, remote link.ID, epoch uint32) *tunnel {
	t := &tunnel{
		router: r, remote: remote, epoch: epoch,
		down: make(chan struct{}), opened: make(chan struct{}),
		in: alignedBytes(r.opts.Window), kept: newRetention(r.opts.Retention), base: 1,
		patience: resendFirst, trip: roundTrip{limit: resendFirst}, ackAt: r.opts.Retention / 4,
	}
	t.expect.Store(1)
	for i := range t.bells {
		t.bells[i] = make(chan struct{}, 1)
	}
	t.watched = watches{}
	t.memory = sinkMemory{
		in: t.in, win: ntb.MappedWindow(t.in, ntb.Cacheable), spad: t.storeSpad, published: t.published,
	}
	return t
}

func (t *tunnel) current() tunnelState { return tunnelState(t.state.Load()) }

func (t *tunnel) storeSpad(i int, v uint32) bool {
	if i >= tunnelSpads {
		return false
	}
	t.spads[i].Store(v)
	return true
}

// Caps implements ntb.Device. For all that is known, the other end's memory is not
// on this machine, and Order needs no fences.
func (t *tunnel) Caps() ntb.Caps {
	return ntb.Caps{Backend: "ring", Doorbells: tunnelBells, Scratchpads: tunnelSpads}
}

func (t *tunnel) Inbound() []byte      { return t.in }
func (t *tunnel) Outbound() ntb.Window { return t.out }

func (t *tunnel) Spad(i int) uint32 {
	if !t.LinkUp() {
		return link.Gone
	}
	return t.spads[i].Load()
}

func (t *tunnel) LinkUp() bool { return t.current() == tunnelUp }

// WaitDoorbell implements ntb.Device. The caller's look comes after it (pair S10).
func (t *tunnel) WaitDoorbell(bit int) error {
	if err := t.linkError(); err != nil {
		return err
	}
	select {
	case <-t.bells[bit]:
	case <-t.down:
	}
	return t.linkError()
}

func (t *tunnel) linkError() error {
	switch t.current() {
	case tunnelClosed:
		return ntb.ErrClosed
	case tunnelDown:
		if t.err != nil {
			return t.err
		}
		return ntb.ErrLinkDown
	}
	return nil
}

func (t *tunnel) DMA(int) ntb.DMAChannel { panic("ring: a tunnel has no DMA channels") }

// Reclaim implements ntb.Device. The window is on the heap.
func (t *tunnel) Reclaim(int, int) error { return ntb.ErrNotSupported }

// Disable implements ntb.Device. What was sent before arrives before the other end
// sees it.
func (t *tunnel) Disable() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.finish(tunnelDown)
}

// finish ends the device here, and has the other end told. The caller holds mu.
func (t *tunnel) finish(s tunnelState) {
	if t.current() >= s {
		return
	}
	t.flush()
	t.sayClose = !t.ended
	t.goDown(s)
	t.push(false)
}

// goDown advances the state to s. The caller holds mu.
func (t *tunnel) goDown(s tunnelState) {
	was := t.current()
	if was >= s {
		return
	}
	t.state.Store(uint32(s)) // first, since goroutines that wake must find it
	if was < tunnelDown {
		t.kept.open = false
		close(t.down)
		t.orders.end()
		for _, w := range t.line {
			w.Wake()
		}
		t.router.forget(t)
	}
}

// end drops what was to be sent, since no node would get it. The caller holds mu.
func (t *tunnel) end() {
	t.ended = true
	t.sayOpen, t.sayAccept, t.sayClose = false, false, false
	t.kept.open = false
	t.base += uint32(t.kept.count)
	t.kept.drop(t.kept.count)
	t.late.clear()
	t.next, t.high = 0, 0
	t.goDown(tunnelDown)
	t.tryRemove()
}

// Close implements ntb.Device. It does not wait. What was sent, and the end itself,
// is sent again until it is acknowledged or closedLimit has passed.
func (t *tunnel) Close() error {
	t.mu.Lock()
	t.closedAt = time.Now()
	t.finish(tunnelClosed)
	if !t.ended {
		t.watch(closedLimit)
	}
	t.mu.Unlock()
	t.rmu.Lock()
	t.gone = true
	t.in, t.memory.in, t.memory.win = nil, nil, ntb.Window{}
	t.rmu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tryRemove()
	return nil
}

// tryRemove removes the tunnel from the table if it is closed and done. The caller
// holds mu.
func (t *tunnel) tryRemove() {
	if t.ended && t.current() == tunnelClosed {
		for _, timer := range []*time.Timer{t.guard, t.acker} {
			if timer != nil {
				timer.Stop()
			}
		}
		t.router.tunnels.remove(t)
	}
}
