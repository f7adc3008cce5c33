package link

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ntbnet/ntbnet/flowctl"
	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/ntb"
)

// Peer is another process, as seen from this one.
type Peer struct {
	// Immutable.
	node   *Node
	path   Path
	bridge *bridge // path, or nil
	frames Frames  // path, or nil
	caps   ntb.Caps
	in     []byte        // the whole inbound window
	out    ntb.Window    // the whole outbound window
	local  []byte        // the region of in
	remote ntb.Window    // the region of out
	kick   chan struct{} // capacity 1: a doorbell during bring-up
	done   chan struct{} // closed after Handler.Down

	// Set by bringUp, constant once up is set.
	id       ID
	handlers [numServices]Handler
	up       atomic.Bool

	refs   atomic.Int32 // the device is closed when none is left
	cause  Cause        // why the link went down
	setup  setupSend
	notes  noteTable
	number atomic.Uint32 // last number used to notify

	looks looks

	rescues atomic.Uint64
}

// looks are the looks through what the peer has published: its notification words and set-up
// messages. One goroutine looks at a time, whichever comes first.
type looks struct {
	mu   lock.Mutex[lock.Poll] // held during a look
	seen atomic.Uint32         // last master word seen; stored under mu

	// Guarded by mu.
	setup   setupReceive
	stopped bool // there are no further looks
}

func newPeer(n *Node, path Path) (*Peer, error) {
	in, out := path.Inbound(), path.Outbound()
	if len(in) < MinWindow || out.Len() < MinWindow {
		return nil, fmt.Errorf("link: windows of %d and %d bytes, want at least %d", len(in), out.Len(), MinWindow)
	}
	p := &Peer{
		node: n, path: path, caps: path.Caps(), in: in, out: out,
		local:  in[regionOf(len(in)):],
		remote: out.Slice(regionOf(out.Len()), out.Len()-regionOf(out.Len())),
		kick:   make(chan struct{}, 1),
		done:   make(chan struct{}),
	}
	p.bridge, _ = path.(*bridge)
	p.frames, _ = path.(Frames)
	p.notes.init(slotsOf(len(in)))
	p.setup.account = flowctl.NewSend(setupSlots)
	p.refs.Store(1) // the reference of run
	return p, nil
}

// ID returns the peer's id.
func (p *Peer) ID() ID { return p.id }

// Frames returns the frames that lead to the peer, or nil if a bridge does.
func (p *Peer) Frames() Frames { return p.frames }

// Caps returns the properties of the path to the peer.
func (p *Peer) Caps() ntb.Caps { return p.caps }

// DMA returns the bridge's DMA channel i, less than Caps().DMAChannels. Offsets of
// its copies are those of the whole outbound window, as Window.Offset returns them.
func (p *Peer) DMA(i int) ntb.DMAChannel { return p.bridge.DMA(i) }

// Handler returns the handler that the service with that number opened for this
// peer.
func (p *Peer) Handler(service int) Handler { return p.handlers[service] }

// Local returns the region here that the peer writes. It is valid while the caller
// holds the peer.
func (p *Peer) Local() []byte { return p.local }

// Remote returns the region at the peer that this process writes.
func (p *Peer) Remote() ntb.Window { return p.remote }

// Slots returns how many objects can be attached here.
func (p *Peer) Slots() int { return p.notes.n }

// RemoteSlots returns how many objects can be attached at the peer.
func (p *Peer) RemoteSlots() int { return slotsOf(p.out.Len()) }

// Reclaim returns whole pages of the local region to the system, if the bridge can.
// They read as zero then. The peer must have stopped writing there.
func (p *Peer) Reclaim(off, n int) {
	if p.caps.Reclaims {
		_ = p.bridge.Reclaim(len(p.in)-len(p.local)+off, n) // the system keeps them: nothing is lost
	}
}

// Hold keeps the peer's memory from being released. The caller must know that it is
// held at that moment, by a Handler that is not down or by another hold.
func (p *Peer) Hold() { p.refs.Add(1) }

// Release ends a hold.
func (p *Peer) Release() {
	if p.refs.Add(-1) == 0 {
		p.path.Close()
		p.node.wg.Done()
	}
}

// Up reports whether the link to the peer is up.
func (p *Peer) Up() bool { return p.up.Load() && p.path.LinkUp() }

// Done returns a channel that is closed when the link is down and its handlers know
// it.
func (p *Peer) Done() <-chan struct{} { return p.done }

// Err returns why the link went down.
func (p *Peer) Err() error { return p.cause.Get() }

// Fail takes the link down. The first reason given counts.
func (p *Peer) Fail(err error) {
	p.cause.Set(err)
	p.path.Disable()
}

// Order is called by a goroutine that is about to sleep, after it has announced
// that to the peer over a bridge and before its re-check. See [ntb.Device].
func (p *Peer) Order() { p.bridge.Order() }

// guardEvery is how often a link with lossy doorbells is polled. A word that was
// not handled for a whole period means a lost doorbell.
const guardEvery = 500 * time.Millisecond

// run is the link's goroutine. It looks through the words when the peer wakes it, and
// cleans up at the end.
func (p *Peer) run() {
	if p.caps.LossyDoorbells {
		go p.guard()
	}
	var err error
	for {
		if err = p.path.Wait(); err != nil {
			break
		}
		if !p.up.Load() { // pair S17, with open
			select {
			case p.kick <- struct{}{}:
			default:
			}
			continue
		}
		p.drain()
	}
	switch {
	case errors.Is(err, ErrDown): // which has the reason
	case errors.Is(err, ntb.ErrLinkDown):
		err = ErrDown
	}
	p.Fail(err)
	p.stop()
	p.node.remove(p)
	close(p.done)
	p.Release()
}

// guard polls a link whose doorbells get lost.
func (p *Peer) guard() {
	tick := time.NewTicker(guardEvery)
	defer tick.Stop()
	var last uint32  // looks.seen a period ago
	pending := false // whether something was pending then
	for {
		select {
		case <-p.done:
			return
		case <-tick.C:
		}
		// It must not matter if more is announced meanwhile, since the peer does
		// not ring for that: it has rung already.
		p.looks.mu.Lock()
		was, seen := pending, p.looks.seen.Load()
		pending = p.up.Load() && !p.looks.stopped && p.Pending()
		p.looks.mu.Unlock()
		if was && pending && seen == last {
			p.rescues.Add(1)
			p.drain()
		}
		last = seen
	}
}

// stop handles what the peer published before the link went down, and calls Down of the
// handlers. One look finds all of it. What the peer stores later does not count.
func (p *Peer) stop() {
	p.looks.mu.Lock()
	defer p.looks.mu.Unlock()
	p.looks.stopped = true
	if !p.up.Load() {
		return
	}
	p.lookLocked()
	p.notes.closed = true
	p.handlersDown()
}

// handlersDown calls Down of all handlers.
func (p *Peer) handlersDown() {
	for _, s := range p.handlers {
		if s != nil {
			s.Down(p.Err())
		}
	}
}

// Stats are the counters of one link, since it came up.
type Stats struct {
	// Doorbells is how many doorbells this process rang.
	Doorbells uint64
	// Rescues is how often the slow guard found words that no doorbell had
	// announced. It is 0 unless doorbells get lost.
	Rescues uint64
}

// Stats returns the link's counters.
func (p *Peer) Stats() Stats {
	return Stats{Doorbells: p.Rung(), Rescues: p.rescues.Load()}
}
