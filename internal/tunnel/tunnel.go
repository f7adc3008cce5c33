package tunnel

import (
	"sync/atomic"
	"time"

	"github.com/ntbnet/ntbnet/internal/arq"
	"github.com/ntbnet/ntbnet/internal/frame"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/ntb"
)

// Config is what the tunnels of a process have in common.
type Config struct {
	ID         link.ID                                 // of the process
	FrameBytes int                                     // the most that a frame carries besides its header
	Window     int                                     // size in bytes of the memory that another end stores to
	Retention  int                                     // how many bytes of frames are kept at most until they are acknowledged
	Hops       uint16                                  // over how many links a frame may go
	Drops      *frame.Drops                            // counts those that the tunnels drop
	AfterFunc  func(time.Duration, func()) *time.Timer // time.AfterFunc
}

// Lane is where frames go. It has a lock of its own, under which it pulls them.
type Lane interface {
	// Want has s send what it has, in its turn. The caller holds no lock of a tunnel.
	Want(s Source)
	// Forget ends the wait of s. The caller holds no lock of a tunnel.
	Forget(s Source)
	// Put sends a frame. Only Source.Send calls it.
	Put(f *frame.Header, body []byte)
}

// Source is where a lane gets frames of this process from.
type Source interface {
	// Send puts the next frame into l, if there is one that goes there. It returns the frame's
	// size, 0 for none, and whether there are more. The caller holds l's lock, and there is room.
	Send(l Lane) (n int, more bool)
}

// Router is what is around a tunnel. All but Reset are called with the lock of the tunnel held.
type Router interface {
	// Route returns the lane with which the route begins, or nil if there is none. made changes
	// when a link behind that lane is another one.
	Route() (l Lane, made uint64)
	// Forget is called when the tunnel goes down.
	Forget()
	// Remove is called when it is closed, and no frame may be delivered to it any more.
	Remove()
	// Reset informs the source of a frame that there is no tunnel for it.
	Reset(f *frame.Header)
}

// Tunnel is this process' end of a path of frames to another process. With Caps, Poll and Rest
// it is link.Frames. Stores are gathered in an open frame, which is sent at the next Publish.
// What is sent when, and again, is up to arq.
type Tunnel struct {
	// Immutable.
	config *Config
	router Router
	Remote link.ID       // the process
	Epoch  uint32        // the same at both ends
	Index  uint32        // its number here, set before the first Reroute
	down   chan struct{} // closed when the path goes down
	opened chan struct{} // closed when the other end is known to be there

	far     uint32     // its number at the other end; constant once up, as is out
	out     ntb.Window // that of the other end
	inbound inbound    // what the other end stores, under a lock of its own

	state    atomic.Uint32 // the state of arq, for those who do not hold mu; stored under mu
	requests atomic.Uint32 // calls of RequestReroute that serveReroutes has not handled; the first starts it
	probes   atomic.Bool   // one of them asks to probe the other end

	// mu guards the following. It is locked after those of lanes, before the Router's, and not while
	// an inbound's is held.
	mu         lock.Mutex[lock.Tunnel]
	arq        arq.End
	late       backlog     // stores for which arq has no room yet, in their order
	writers    turnQueue   // those with data, that wait for room
	deliveries []*delivery // calls of Arrived that wait; first those whose stores are all in frames
	nextHop    nextHop
	timer      retransmitTimer // calls onRetransmitTimer
	header     frame.Header    // of the frame that is being sent
	err        error           // why the link went down, if there is more to say; constant then
}

var _ ntb.Sink = (*Tunnel)(nil)

// maxUnsent is how many frames wait for the lane at most before data waits for its
// turn. More would only delay what is stored next, such as the peer's credit, behind a
// megabyte of data in a busy lane of small slots.
const maxUnsent = 16

// maxFrames limits the frames without acknowledgement, whatever their size.
const maxFrames = 1 << 12

// Ask returns the end of a tunnel that this process asks another one for. It does so from the
// first Reroute on.
func Ask(c *Config, r Router, remote link.ID, epoch uint32) *Tunnel {
	t := newTunnel(c, r, remote, epoch)
	t.arq = arq.Asker(c.arq(), time.Now())
	return t
}

// Answer returns the end of a tunnel that another process has asked for. asked is the frame by
// which it did, whose Window is right.
func Answer(c *Config, r Router, asked *frame.Header) *Tunnel {
	t := newTunnel(c, r, asked.Src, asked.Epoch)
	a := c.arq()
	a.AckAt = c.ackAt(asked)
	t.arq = arq.Answerer(a)
	t.meet(asked)
	t.changed()
	return t
}

func newTunnel(c *Config, r Router, remote link.ID, epoch uint32) *Tunnel {
	t := &Tunnel{
		config: c, router: r, Remote: remote, Epoch: epoch,
		down: make(chan struct{}), opened: make(chan struct{}),
	}
	t.inbound.init(c.Window)
	t.timer.f, t.timer.after = t.onRetransmitTimer, c.AfterFunc
	return t
}

// arq returns how a tunnel keeps frames.
func (c *Config) arq() arq.Config {
	return arq.Config{Buf: ntb.AlignedBytes(c.Retention), Frames: maxFrames, AckAt: c.Retention / 4}
}

// ackAt returns how much is acknowledged at once when it is owed: a quarter of what either
// end keeps. f is an open or an accept.
func (c *Config) ackAt(f *frame.Header) int { return min(c.Retention, int(f.Ask)<<10) / 4 }

// meet sets what an open or an accept has of the other end.
func (t *Tunnel) meet(f *frame.Header) {
	n, _ := f.Window()
	t.far, t.out = f.From, ntb.SinkWindow(t, n)
}

// State returns the state. It takes no lock.
func (t *Tunnel) State() arq.State { return arq.State(t.state.Load()) }

// changed makes the state of arq known, and does what its change asks for. The caller holds
// mu.
func (t *Tunnel) changed() {
	was, s := t.State(), t.arq.State()
	if was == s {
		return
	}
	t.state.Store(uint32(s)) // first, since goroutines that wake must find it
	if was < arq.Draining && s >= arq.Draining {
		close(t.down)
		for _, w := range t.writers {
			w.Wake()
		}
		t.router.Forget()
	}
	if s.Over() {
		t.late.clear()
	}
	if s == arq.Closed {
		t.timer.stop()
		t.router.Remove()
	}
}

// Opened returns a channel that is closed when the other end is known to be there.
func (t *Tunnel) Opened() <-chan struct{} { return t.opened }

// Down returns a channel that is closed when the path goes down.
func (t *Tunnel) Down() <-chan struct{} { return t.down }

// Stats returns what has been sent.
func (t *Tunnel) Stats() arq.Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.arq.Stats()
}

// Drop drops what was to be sent, since no process would get it.
func (t *Tunnel) Drop() { t.Step(func(e *arq.End, _ time.Time) { e.Abort() }) }

// Probe finds out whether the other end still has the tunnel. Its process may have ended,
// and another one may have begun with the same id. A process that has nothing to send
// would not learn of it. The answer is an acknowledgement or a reset.
func (t *Tunnel) Probe() { t.Step((*arq.End).Probe) }

// Inbound implements link.Path.
func (t *Tunnel) Inbound() []byte { return t.inbound.memory.in }

// Outbound implements link.Path.
func (t *Tunnel) Outbound() ntb.Window { return t.out }

// LinkUp implements link.Path.
func (t *Tunnel) LinkUp() bool { return t.State() == arq.Up }

// Park implements link.Path: the other end always wakes this one.
func (t *Tunnel) Park() {}

// Wait implements link.Path. The caller's look comes after it (pair S10).
func (t *Tunnel) Wait() error {
	if err := t.linkError(); err != nil {
		return err
	}
	select {
	case <-t.inbound.woken:
	case <-t.down:
	}
	return t.linkError()
}

func (t *Tunnel) linkError() error {
	switch s := t.State(); {
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
func (t *Tunnel) Disable() {
	t.Step(func(e *arq.End, _ time.Time) {
		t.flush()
		e.Disable()
	})
}

// Close implements link.Path. It does not wait. What was sent, and the end itself,
// is sent again until it is acknowledged or arq.LingerFor has passed. Its connections have
// ended: what the other end sends later is answered with a reset.
func (t *Tunnel) Close() error {
	t.Step(func(e *arq.End, now time.Time) {
		t.flush()
		e.Close(now)
	})
	t.inbound.close()
	return nil
}
