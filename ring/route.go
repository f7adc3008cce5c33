package ring

import "github.com/ntbnet/ntbnet/internal/link"

// linkKey distinguishes links.
type linkKey struct {
	direction Direction
	id        link.ID // for Direct the neighbour's host, for Down the member; else 0
}

func (l *Link) key() linkKey {
	switch l.direction {
	case Direct:
		return linkKey{Direct, link.MakeID(l.id.Host(), 0)}
	case Down:
		return linkKey{Down, l.id}
	}
	return linkKey{l.direction, 0}
}

// onward returns the link by which a frame for dst goes on that came over from. It
// returns nil if that is down or there is none, since a frame never turns back.
func (r *router) onward(from *Link, dst link.ID) *Link {
	switch {
	case dst.Host() == r.host:
		return (*r.members.Load())[dst]
	case from.direction > Right:
		return nil
	}
	return r.sides[from.direction.opposite()].Load()
}

// nextHopTo returns the next hop on the route to a process for a tunnel with an epoch. l is the
// link to it. made identifies the links behind it.
func (r *router) nextHopTo(id link.ID, epoch uint32) (l *Link, made uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l, d := r.nextHopLocked(id, epoch)
	if l != nil && d != Direct {
		made = r.madeLocked(id.Host(), d)
	}
	return l, made
}

// madeLocked returns a number that changes when a link on the route to a host is made
// again, as far as is known. This process' own links do not count. A link is
// identified by what its nearer end reports, whose link state comes first, so that none
// counts as new twice.
func (r *router) madeLocked(host int, d Direction) (made uint64) {
	h := r.host
	made = uint64(d) // for an uplink, the side that its other end takes
	if !r.opts.Member {
		h = r.opts.neighbour(h, d)
	}
	for ; h != host; h = r.opts.neighbour(h, d) {
		if n := r.linkStates[h]; n != nil {
			made = made*0x9e3779b97f4a7c15 + uint64(n.links[d])
		}
	}
	return made
}

// nextHopLocked returns the link to the next hop on the route to a process, and its direction.
// The link is nil if there is no route, or the process is known not to exist.
func (r *router) nextHopLocked(id link.ID, epoch uint32) (*Link, Direction) {
	if n := r.linkStates[id.Host()]; n != nil && !n.names(id) {
		return nil, 0
	}
	l, d, _ := r.routeLocked(id.Host(), epoch)
	return l, d
}

// route returns the route to a host for a tunnel with an epoch: its first link, nil if there
// is none, the direction, and the number of links. The shorter route comes first, and of two
// equal ones the one of [Options.sidesTo].
func (r *router) route(host int, epoch uint32) (*Link, Direction, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.routeLocked(host, epoch)
}

func (r *router) routeLocked(host int, epoch uint32) (best *Link, side Direction, hops int) {
	if host < 1 || host > r.opts.Hosts || host == r.host {
		return nil, 0, 0
	}
	if r.opts.Topology == Mesh {
		l := r.links[linkKey{Direct, link.MakeID(host, 0)}]
		hops = 1
		if r.opts.Member {
			// The owner reports its own links as both sides of their hosts.
			l, hops = r.links[linkKey{Up, 0}], 2
			if r.linkStates[host].side(Left) != stateUp {
				l = nil
			}
		}
		if l == nil || !l.dev.LinkUp() {
			return nil, 0, 0
		}
		return l, Direct, hops
	}
	for _, d := range r.opts.sidesTo(r.host, host, epoch) {
		n := r.opts.hops(r.host, host, d)
		l := r.links[linkKey{d, 0}]
		if r.opts.Member {
			if l = r.links[linkKey{Up, 0}]; r.linkStates[r.host].side(d) != stateUp {
				l = nil
			}
			n++
		}
		if r.opts.hops(r.host, host, d) == 0 || l == nil || !l.dev.LinkUp() || !r.openLocked(host, d) {
			continue
		}
		if best == nil || n < hops {
			best, side, hops = l, d, n
		}
	}
	return best, side, hops
}

// openLocked reports whether no link on the route to a host is known to be cut. This
// host's own links do not count.
func (r *router) openLocked(host int, d Direction) bool {
	for h := r.opts.neighbour(r.host, d); h != host; {
		next := r.opts.neighbour(h, d)
		if r.linkStates[h].side(d) == stateDown || r.linkStates[next].side(d.opposite()) == stateDown {
			return false
		}
		h = next
	}
	return true
}

// Owner returns the process of a host that has its links to other hosts, or 0 if it is
// not known.
func (n *Node) Owner(host int) link.ID {
	r := n.router
	if host == r.host && !r.opts.Member {
		return n.id
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.links {
		if l.direction != Down && l.id.Host() == host && l.dev.LinkUp() {
			return l.id
		}
	}
	if n := r.linkStates[host]; n != nil && host != r.host {
		return n.id
	}
	return 0
}

// Changed returns a channel that is closed at the next change of links or link
// states.
func (n *Node) Changed() <-chan struct{} {
	r := n.router
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.nextChange
}
