package ring

import (
	"fmt"
	"math/rand/v2"

	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/ntb"
)

// deliver takes a frame whose destination is this node, over a link. The caller is a lane's
// worker, and has that inLane's lock only. It does not wait.
func (r *router) deliver(from *Link, f *frame, body []byte) {
	if f.kind == frameOpen {
		r.open(from.key(), f)
		return
	}
	t := r.tunnels.get(f.to)
	switch {
	case t == nil || t.epoch != f.epoch:
		r.drop(dropUnknownTunnel)
		r.reset(f)
	case t.remote != f.src:
		r.drop(dropForged)
		r.reset(f)
	case f.kind == frameAccept:
		t.accepted(f)
	case f.kind == frameReset:
		t.mu.Lock()
		t.end()
		t.mu.Unlock()
	case f.kind == frameAck:
		t.take(f, 0, false)
	default:
		t.receive(f, body)
	}
}

// receive handles a frame in sequence: first the stores, then the doorbells.
func (t *tunnel) receive(f *frame, body []byte) {
	r := t.router
	t.rmu.Lock()
	if t.current() == tunnelOpening {
		t.rmu.Unlock()
		return // it comes again; the answer to open was lost or is late
	}
	now := false
	n := f.size()
	next := f.seq == t.expect.Load()
	switch {
	case !next && int32(f.seq-t.expect.Load()) < 0:
		r.drop(dropDuplicate)
		now = true // most likely the acknowledgement was lost
	case !next:
		r.drop(dropGap)
		n = 0
	case f.kind == frameClose:
		t.expect.Add(1)
		now = true
	case t.gone:
		r.drop(dropClosed)
		t.expect.Add(1)
	case !t.memory.apply(body):
		r.drop(dropBadBody)
		t.rmu.Unlock()
		r.reset(f)
		t.broken(fmt.Errorf("%w: bad frame from %v", link.ErrProtocol, t.remote))
		return
	default:
		t.expect.Add(1)
		t.got++
		if f.bells != 0 {
			// What was stored must be visible before a channel is found full. The
			// goroutine that takes the token then sees it (pair S10, with
			// WaitDoorbell).
			ntb.Fence()
		}
		for bit := range tunnelBells {
			if f.bells&(1<<bit) != 0 {
				select {
				case t.bells[bit] <- struct{}{}:
				default: // rung already
				}
			}
		}
	}
	if next && f.ask != 0 {
		t.toAnswer.Store(f.ask)
	}
	t.rmu.Unlock()
	if !next {
		t.take(f, n, now)
		return
	}
	t.mu.Lock()
	if f.ask != 0 {
		t.answer = t.toAnswer.Load() // another worker may have taken the next frame by now
	}
	if f.answer != 0 {
		t.orders.answer(f.answer)
	}
	t.mu.Unlock()
	t.take(f, n, now)
	if f.kind == frameClose {
		t.mu.Lock()
		t.end()
		t.mu.Unlock()
	}
}

// take handles what every frame of a tunnel carries: acknowledgements, of ours and
// for theirs, and then what waited for these.
func (t *tunnel) take(f *frame, n int, now bool) {
	t.mu.Lock()
	if t.current() == tunnelOpening {
		t.mu.Unlock()
		return
	}
	t.heard = true
	ok := t.acknowledged(f.ack)
	if n > 0 || now {
		t.owes(n, now)
	}
	t.signal()
	t.push(false)
	t.mu.Unlock()
	if !ok {
		t.broken(fmt.Errorf("%w: %v acknowledges what was not sent", link.ErrProtocol, t.remote))
	}
}

// broken ends a tunnel whose other end violates the protocol.
func (t *tunnel) broken(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.brokenLocked(err)
}

// brokenLocked is broken. The caller holds mu.
func (t *tunnel) brokenLocked(err error) { t.endFor(fmt.Errorf("%w: %w", ntb.ErrLinkDown, err)) }

// endFor ends the tunnel with an error. The caller holds mu.
func (t *tunnel) endFor(err error) {
	if t.current() < tunnelDown {
		t.err = err // before the state, by which others know that it may be read
	}
	t.end()
}

// Each tunnel takes memory here: Options.Window and Options.Retention. A neighbour can ask
// in any name, and be the source of all news, so what it passes on has a bound of its own.
const (
	maxTunnels     = 64   // that one process may ask for
	maxHostTunnels = 512  // that all processes of a host may ask for
	maxLinkTunnels = 1024 // that may be asked for over the link to one neighbour
)

// open makes this end of a tunnel that another node asks for, over a link, or answers again.
func (r *router) open(over linkKey, f *frame) {
	window := int(f.arg) << 10
	if f.epoch == 0 || window < link.MinWindow || window > 1<<30 || f.src.Host() == r.host {
		r.drop(dropBadBody)
		r.reset(f)
		return
	}
	if t := r.tunnels.byEpoch(f.src, f.epoch); t != nil {
		t.mu.Lock()
		if t.sayAccept = !t.ended; t.sayAccept && !t.heard {
			t.again() // accept was lost or is late, and so is everything behind it
		}
		t.push(false)
		t.mu.Unlock()
		return
	}
	if !r.named(f.src) {
		r.drop(dropStranger) // perhaps the news have not come yet; the frame comes again
		return
	}
	process, host, link := r.tunnels.askedBy(f.src, over)
	if process >= maxTunnels || host >= maxHostTunnels || link >= maxLinkTunnels {
		r.drop(dropTooMany)
		r.reset(f)
		return
	}
	t := newTunnel(r, f.src, f.epoch)
	t.over = over
	t.to, t.sayAccept = f.from, true // before others find t, since it is the first frame
	t.opening(window, f.ask)
	r.mu.Lock()
	// This is checked again, since another worker may have a copy of the same frame, by
	// another way. Two tunnels here would be one there.
	if r.closed || r.tunnels.byEpoch(f.src, f.epoch) != nil {
		r.mu.Unlock()
		return
	}
	r.tunnels.add(t)
	r.node.wg.Add(1)
	r.mu.Unlock()
	go r.answer(t)
}

// opening sets what is known of the other end. It is called before t is shared, or
// with mu held.
func (t *tunnel) opening(window int, retention uint32) {
	t.out = ntb.SinkWindow(t, window)
	t.ackAt = max(1, min(t.ackAt, int(retention)<<10/4))
	t.state.Store(uint32(tunnelUp))
	close(t.opened)
}

// accepted handles the answer to open.
func (t *tunnel) accepted(f *frame) {
	t.mu.Lock()
	defer t.mu.Unlock()
	window := int(f.arg) << 10
	if t.current() != tunnelOpening || window < link.MinWindow || window > 1<<30 {
		return
	}
	t.to = f.from
	t.sayOpen = false
	t.opening(window, f.ask)
}

func newEpoch() uint32 { return rand.Uint32N(link.Gone-1) + 1 }
