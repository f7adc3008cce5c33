package ring

import (
	"fmt"
	"time"

	"github.com/ntbnet/ntbnet/internal/arq"
	"github.com/ntbnet/ntbnet/internal/frame"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/ntb"
)

// deliver takes a frame whose destination is this process, over a link. The caller takes
// frames of an inLane, and has that lane's lock. It may be any goroutine that found room for
// a head, and does not wait.
func (r *router) deliver(from *inLane, f *frame.Header, body []byte) {
	if f.Kind == frame.Open {
		r.open(from.link.key(), f)
		return
	}
	t := r.tunnels.get(f.To)
	switch {
	case t == nil || t.epoch != f.Epoch:
		r.drop(frame.DropUnknownTunnel)
		r.reset(f)
	case t.remote != f.Src:
		r.drop(frame.DropForged)
		r.reset(f)
	case f.Kind == frame.Accept:
		t.accepted(f)
	case f.Kind == frame.Reset:
		t.step(t.drop)
	case f.Kind == frame.Ack:
		t.arrived(arq.Arrival{Kind: arq.Ack, Ack: f.Ack})
	default:
		if t.heard.Load() != from {
			t.heard.Store(from)
		}
		t.receive(f, body)
	}
}

// receive handles a frame in sequence.
func (t *tunnel) receive(f *frame.Header, body []byte) {
	switch s := t.current(); {
	case s == arq.Opening:
		return // it comes again; the answer to open was lost or is late
	case s.Over() && t.err != nil:
		t.router.reset(f) // the other end does not know that this one gave up
		return
	}
	v, expects, ok := t.inbound.take(t.router, f, body)
	if !ok {
		t.router.reset(f)
		t.step(func(time.Time) { t.broken(fmt.Errorf("%w: bad frame from %v", link.ErrProtocol, t.remote)) })
		return
	}
	t.arrived(arq.Arrival{Kind: arq.Kind(f.Kind), Ack: f.Ack, Verdict: v, Expects: expects, Bytes: f.Size(), Asks: f.Ask != 0})
}

// arrived handles what a frame carries besides what it stores: acknowledgements, of ours and
// for theirs. Then it sends what waited for these.
func (t *tunnel) arrived(a arq.Arrival) {
	t.mu.Lock()
	defer t.unlockAndSend()
	now, agreed := time.Now(), t.arq.Agreed()
	if !t.arq.Arrived(a, now) {
		t.broken(fmt.Errorf("%w: %v acknowledges what was not sent", link.ErrProtocol, t.remote))
		return
	}
	if !agreed && t.arq.Agreed() { // the first frame from the process that asked
		close(t.opened)
	}
	t.push(now)
	t.delivered()
}

// broken ends a tunnel whose other end violates the protocol. The caller holds mu.
func (t *tunnel) broken(err error) { t.endFor(fmt.Errorf("%w: %w", ntb.ErrLinkDown, err)) }

// endFor ends the tunnel with an error. The caller holds mu.
func (t *tunnel) endFor(err error) {
	if t.current() < arq.Draining {
		t.err = err // before the state, by which others know that it may be read
	}
	t.arq.Abort()
	t.changed()
}

// Each tunnel takes memory here: Options.Window and Options.Retention. A neighbour can ask
// in any name, and be the source of all link states, so what it passes on has a bound of its own.
const (
	maxTunnels     = 64   // that one process may ask for
	maxHostTunnels = 512  // that all processes of a host may ask for
	maxLinkTunnels = 1024 // that may be asked for over the link to one neighbour
)

// open handles a frame by which another process asks for a tunnel, over a link.
func (r *router) open(over linkKey, f *frame.Header) {
	if t := r.admit(over, f); t != nil {
		go r.answer(t)
	}
}

// admit makes this end of a tunnel that another process asks for, over a link. If that is there,
// it is answered again. admit returns nil then, and if there may be none. Otherwise the
// caller calls answer.
func (r *router) admit(over linkKey, f *frame.Header) *tunnel {
	if _, ok := f.Window(); !ok || f.Epoch == 0 || f.Src.Host() == r.host {
		r.drop(frame.DropBadBody)
		r.reset(f)
		return nil
	}
	if t := r.tunnels.byEpoch(f.Src, f.Epoch); t != nil {
		t.step(t.arq.OpenedAgain)
		return nil
	}
	if !r.named(f.Src) {
		r.drop(frame.DropStranger) // perhaps its link state has not come yet; the frame comes again
		return nil
	}
	process, host, link := r.tunnels.askedBy(f.Src, over)
	if process >= maxTunnels || host >= maxHostTunnels || link >= maxLinkTunnels {
		r.drop(frame.DropTooMany)
		r.reset(f)
		return nil
	}
	t := newAnswerer(r, over, f)
	r.mu.Lock()
	defer r.mu.Unlock()
	// This is checked again, since another worker may have a copy of the same frame, by
	// another route. Two tunnels here would be one there.
	if r.closed || r.tunnels.byEpoch(f.Src, f.Epoch) != nil {
		return nil
	}
	r.tunnels.add(t)
	r.node.wg.Add(1)
	return t
}

// accepted handles the answer to open.
func (t *tunnel) accepted(f *frame.Header) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := f.Window(); !ok || t.arq.State() != arq.Opening {
		return
	}
	t.meet(f)
	t.arq.Accepted(t.router.opts.ackAt(f))
	t.changed()
	close(t.opened)
}
