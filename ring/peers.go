package ring

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ntbnet/ntbnet/internal/link"
)

// bringUpLimit limits the bring-up of a peer over a tunnel.
const bringUpLimit = 10 * time.Second

// lingerLimit is how long Close waits until other processes have what was sent to them.
const lingerLimit = 2 * time.Second

// Peer returns another process, by its id. For a neighbour whose link is up it is the
// direct peer, unless [Options.Failover] is set. For other processes, or with Failover,
// it is a routed peer. That is made at both ends when it is first asked for, so the
// other process' services are opened too. Peer waits for the other process' answer
// until ctx ends. The peer is made even so, and a later call returns it. If no route
// leads there Peer returns ErrUnreachable, at once when that is known.
//
// The peer's Done is closed when the process has been unreachable for a second, in all
// directions.
func (n *Node) Peer(ctx context.Context, id link.ID) (*link.Peer, error) {
	r := n.router
	for {
		r.mu.Lock()
		if r.closed {
			r.mu.Unlock()
			return nil, link.ErrClosed
		}
		if p := r.knownLocked(id); p != nil {
			r.mu.Unlock()
			return p, nil
		}
		if link, _ := r.nextHopLocked(id, 0); link == nil {
			r.mu.Unlock()
			return nil, fmt.Errorf("%w %v", ErrUnreachable, id)
		}
		a := r.asking[id]
		if a == nil {
			a = &asking{done: make(chan struct{})}
			r.asking[id] = a
			n.wg.Add(1)
			go r.makePeer(a, id)
		}
		r.mu.Unlock()
		select {
		case <-a.done:
			if !errors.Is(a.err, context.DeadlineExceeded) && !errors.Is(a.err, context.Canceled) {
				return a.peer, a.err
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("ring: %v does not answer: %w", id, ctx.Err())
		}
	}
}

// makePeer makes a peer for all calls of Node.Peer that wait for it. It goes on when their time is
// over: calls of a second each would otherwise begin anew each time, and never get a peer that takes
// longer.
func (r *router) makePeer(a *asking, id link.ID) {
	defer r.node.wg.Done()
	ctx, cancel := context.WithTimeout(r.asks, bringUpLimit)
	defer cancel()
	a.peer, a.err = r.ask(ctx, id)
	r.mu.Lock()
	delete(r.asking, id)
	r.mu.Unlock()
	close(a.done)
}

// knownLocked returns the peer with an id that is up, if there is one.
func (r *router) knownLocked(id link.ID) *link.Peer {
	if !r.opts.Failover {
		for _, l := range r.links {
			if l.ready && l.id == id && l.peer.Up() {
				return l.peer
			}
		}
	}
	if t := r.routed[id]; t != nil && t.peer.Up() {
		return t.peer
	}
	return nil
}

// ask makes a tunnel and brings a peer up over it.
func (r *router) ask(ctx context.Context, id link.ID) (*link.Peer, error) {
	t := newAsker(r, id)
	r.tunnels.add(t)
	t.Reroute()
	var err error
	select {
	case <-t.Opened():
		p, err := r.node.UpOver(t, id)
		if err == nil {
			r.keep(p, t)
		}
		return p, err
	case <-t.Down():
		err = fmt.Errorf("%w %v", ErrUnreachable, id)
	case <-ctx.Done():
		err = ctx.Err()
	}
	t.Drop()
	t.Close()
	return nil, err
}

// answer is the counterpart of ask, on a goroutine of its own. The process that asked may have given up, or
// ended, and another one may have asked in its name. So the peer is used, but kept only once that answers.
func (r *router) answer(t *tunnelEnd) {
	defer r.node.wg.Done()
	t.Reroute()
	p, err := r.node.UpOver(t, t.Remote)
	if err != nil {
		return
	}
	t.Probe()
	limit := time.NewTimer(bringUpLimit)
	defer limit.Stop()
	select {
	case <-t.Opened():
		r.keep(p, t)
	case <-t.Down():
	case <-limit.C:
		p.Fail(fmt.Errorf("%w: %v does not answer", link.ErrDown, t.Remote))
	}
}

// keep puts a routed peer into the table, where it stays until its tunnel is down.
func (r *router) keep(p *link.Peer, t *tunnelEnd) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !p.Up() {
		return // Forget, which comes after that, may have been called
	}
	// This replaces even a peer that is up. A process that asks for a tunnel, and stands by it, knows of
	// none. So the other end of the one here most likely belongs to a process that has ended.
	t.peer, r.routed[t.Remote] = p, t
}

// close takes the links down after other processes have what was sent to them. All
// peers are down.
func (r *router) close() {
	for end := time.Now().Add(lingerLimit); r.lingers() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	for _, t := range r.tunnels.all() {
		t.Drop()
	}
	r.mu.Lock()
	links := slices.Collect(maps.Values(r.links))
	r.mu.Unlock()
	for _, l := range links {
		l.fail(link.ErrClosed)
	}
}

// lingers reports whether a tunnel has something to send, and a route.
func (r *router) lingers() bool {
	return slices.ContainsFunc(r.tunnels.all(), func(t *tunnelEnd) bool { return !t.State().Over() && t.via.Load() != nil })
}
