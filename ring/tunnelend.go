package ring

import (
	"slices"
	"sync/atomic"

	"github.com/ntbnet/ntbnet/internal/frame"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/internal/tunnel"
	"github.com/ntbnet/ntbnet/ntb"
)

// tunnelEnd is this process' end of a tunnel over lanes and routes. It is the tunnel's Router.
type tunnelEnd struct {
	*tunnel.Tunnel
	router *router
	peer   *link.Peer // over it, once it is in router.routed; guarded by router.mu
	over   *linkKey   // of the link that another process asked for it over; nil: this process asked; immutable

	heard atomic.Pointer[inLane] // from which the last frame came; nil before the first
	via   atomic.Pointer[Link]   // with which the route begins; nil if there is none; stored in Route
}

var _ link.Frames = (*tunnelEnd)(nil)

// newAsker returns the end of a tunnel that this process asks another one for.
func newAsker(r *router, remote link.ID) *tunnelEnd {
	t := &tunnelEnd{router: r}
	t.Tunnel = tunnel.Ask(&r.tunnelConfig, t, remote, link.NewEpoch())
	return t
}

// newAnswerer returns the end of a tunnel that another process has asked for over a link. asked
// is the frame by which it did.
func newAnswerer(r *router, over linkKey, asked *frame.Header) *tunnelEnd {
	t := &tunnelEnd{router: r, over: &over}
	t.Tunnel = tunnel.Answer(&r.tunnelConfig, t, asked)
	return t
}

// laneIndex returns which lane of each link the tunnel's frames take. It is that of both ends, so
// that a goroutine that waits at one polls the lane by which the other answers.
func (t *tunnelEnd) laneIndex() int { return int(t.Epoch % uint32(t.router.opts.Lanes)) }

// Route implements tunnel.Router.
func (t *tunnelEnd) Route() (tunnel.Lane, uint64) {
	l, made := t.router.nextHopTo(t.Remote, t.Epoch)
	t.via.Store(l)
	if l == nil {
		return nil, 0
	}
	return l.out[t.laneIndex()], made
}

// Forget implements tunnel.Router. It removes the peer over a tunnel that is down from the table.
func (t *tunnelEnd) Forget() {
	t.router.mu.Lock()
	defer t.router.mu.Unlock()
	if t.router.routed[t.Remote] == t {
		delete(t.router.routed, t.Remote)
	}
}

// Remove implements tunnel.Router.
func (t *tunnelEnd) Remove() { t.router.tunnels.remove(t) }

// Reset implements tunnel.Router.
func (t *tunnelEnd) Reset(f *frame.Header) { t.router.reset(f) }

// Caps implements link.Path.
func (t *tunnelEnd) Caps() ntb.Caps {
	via := t.via.Load()
	return ntb.Caps{
		Backend: "ring", SameProcess: via != nil && via.caps.SameProcess,
		Untrusted: true, // only hosts on the way could say whose process it is
	}
}

// Poll implements link.Frames.
func (t *tunnelEnd) Poll() bool {
	l := t.heard.Load()
	return l != nil && l.poll()
}

// Rest implements link.Frames.
func (t *tunnelEnd) Rest() {
	if l := t.heard.Load(); l != nil {
		l.wakeWorker()
	}
}

// tunnelTable finds tunnels by their numbers.
type tunnelTable struct {
	mu    lock.Mutex[lock.Tunnels]
	slots atomic.Pointer[[]*tunnelEnd] // replaced under mu
}

func (tt *tunnelTable) init() {
	tt.slots.Store(&[]*tunnelEnd{})
}

// add gives t a number.
func (tt *tunnelTable) add(t *tunnelEnd) {
	tt.mu.Lock()
	defer tt.mu.Unlock()
	old := *tt.slots.Load()
	slots := slices.Clone(old)
	i := slices.Index(old, nil)
	if i < 0 {
		i, slots = len(old), append(slots, nil)
	}
	t.Index = uint32(i)
	slots[i] = t
	tt.slots.Store(&slots)
}

func (tt *tunnelTable) remove(t *tunnelEnd) {
	tt.mu.Lock()
	defer tt.mu.Unlock()
	old := *tt.slots.Load()
	if old[t.Index] != t {
		return
	}
	slots := slices.Clone(old)
	slots[t.Index] = nil
	tt.slots.Store(&slots)
}

func (tt *tunnelTable) get(i uint32) *tunnelEnd {
	slots := *tt.slots.Load()
	if uint64(i) >= uint64(len(slots)) {
		return nil
	}
	return slots[i]
}

func (tt *tunnelTable) all() []*tunnelEnd {
	return slices.DeleteFunc(slices.Clone(*tt.slots.Load()), func(t *tunnelEnd) bool { return t == nil })
}

// askedBy is how many tunnels another process made, how many its whole host, and how many
// were asked for over a link.
func (tt *tunnelTable) askedBy(remote link.ID, over linkKey) (process, host, link int) {
	for _, t := range tt.all() {
		if t.over == nil {
			continue
		}
		if *t.over == over {
			link++
		}
		if t.Remote.Host() == remote.Host() {
			host++
		}
		if t.Remote == remote {
			process++
		}
	}
	return process, host, link
}

// byEpoch returns the tunnel that another process made, or nil if there is none.
func (tt *tunnelTable) byEpoch(remote link.ID, epoch uint32) *tunnelEnd {
	for _, t := range tt.all() {
		if t.Remote == remote && t.Epoch == epoch && t.over != nil {
			return t
		}
	}
	return nil
}
