package ring

import (
	"github.com/ntbnet/ntbnet/internal/arq"
	"github.com/ntbnet/ntbnet/internal/frame"
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
	case t == nil || t.Epoch != f.Epoch:
		r.drop(frame.DropUnknownTunnel)
		r.reset(f)
	case t.Remote != f.Src:
		r.drop(frame.DropForged)
		r.reset(f)
	default:
		if t.heard.Load() != from {
			t.heard.Store(from)
		}
		t.Take(f, body)
	}
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
func (r *router) admit(over linkKey, f *frame.Header) *tunnelEnd {
	if _, ok := f.Window(); !ok || f.Epoch == 0 || f.Src.Host() == r.host {
		r.drop(frame.DropBadBody)
		r.reset(f)
		return nil
	}
	if t := r.tunnels.byEpoch(f.Src, f.Epoch); t != nil {
		t.Step((*arq.End).OpenedAgain)
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
