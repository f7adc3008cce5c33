package ring

// linkKey tells links apart.
type linkKey struct {
	direction Direction
	id        ID // Direct: the neighbour's host; Down: the member; else 0
}

func (l *Link) key() linkKey {
	switch l.direction {
	case Direct:
		return linkKey{Direct, MakeID(l.id.Host(), 0)}
	case Down:
		return linkKey{Down, l.id}
	}
	return linkKey{l.direction, 0}
}

// onward is the link by which a frame for dst goes on that came over from, nil if
// it is down or there is none: a frame never turns round.
func (r *router) onward(from *Link, dst ID) *Link {
	switch {
	case dst.Host() == r.host:
		return (*r.members.Load())[dst]
	case from.direction > Right:
		return nil
	}
	return r.sides[from.direction.opposite()].Load()
}

// wayTo is the way to a node: a link, and where frames go from there: by an uplink,
// it is the side that its other end takes; and which links come then.
func (r *router) wayTo(id ID) (l *Link, d Direction, made uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l, d = r.wayLocked(id)
	if l != nil && d != Direct {
		made = r.madeLocked(id.Host(), d)
	}
	return l, d, made
}

// madeLocked is a number that changes when a link on the way to a host is made
// again, as far as is known, this node's own aside. Links are told apart by what
// their nearer ends say, whose news come first: none must count as new twice.
func (r *router) madeLocked(host int, d Direction) (made uint64) {
	h := r.host
	if !r.opts.Member {
		h = r.opts.neighbour(h, d)
	}
	for ; h != host; h = r.opts.neighbour(h, d) {
		if n := r.news[h]; n != nil {
			made = made*0x9e3779b97f4a7c15 + uint64(n.links[d])
		}
	}
	return made
}

// wayLocked is the way to a node, nil if there is none or it is known not to be
// there.
func (r *router) wayLocked(id ID) (*Link, Direction) {
	if n := r.news[id.Host()]; n != nil && !n.names(id) {
		return nil, 0
	}
	l, d, _ := r.routeLocked(id.Host())
	return l, d
}

// route is the way to a host: the link, nil if there is none, its direction, and
// how many links. Shorter first, the right one of two that are alike.
func (r *router) route(host int) (*Link, Direction, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.routeLocked(host)
}

func (r *router) routeLocked(host int) (best *Link, way Direction, hops int) {
	if host < 1 || host > r.opts.Nodes || host == r.host {
		return nil, 0, 0
	}
	if r.opts.Topology == Mesh {
		l := r.links[linkKey{Direct, MakeID(host, 0)}]
		hops = 1
		if r.opts.Member {
			// The owner tells of its links as of both sides of their hosts.
			l, hops = r.links[linkKey{Up, 0}], 2
			if r.news[host].side(Left) != stateUp {
				l = nil
			}
		}
		if l == nil || !l.dev.LinkUp() {
			return nil, 0, 0
		}
		return l, Direct, hops
	}
	for _, d := range []Direction{Right, Left} {
		n := r.opts.hops(r.host, host, d)
		l := r.links[linkKey{d, 0}]
		if r.opts.Member {
			if l = r.links[linkKey{Up, 0}]; r.news[r.host].side(d) != stateUp {
				l = nil
			}
			n++
		}
		if r.opts.hops(r.host, host, d) == 0 || l == nil || !l.dev.LinkUp() || !r.openLocked(host, d) {
			continue
		}
		if best == nil || n < hops {
			best, way, hops = l, d, n
		}
	}
	return best, way, hops
}

// openLocked reports whether no link on the way to a host is known to be cut, this
// host's own aside.
func (r *router) openLocked(host int, d Direction) bool {
	for h := r.opts.neighbour(r.host, d); h != host; {
		next := r.opts.neighbour(h, d)
		if r.news[h].side(d) == stateDown || r.news[next].side(d.opposite()) == stateDown {
			return false
		}
		h = next
	}
	return true
}

// Owner is the node of a host that has its links to other hosts, 0 if it is not
// known.
func (n *Node) Owner(host int) ID {
	r, err := n.joined()
	if err != nil {
		return 0
	}
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
	if n := r.news[host]; n != nil && host != r.host {
		return n.id
	}
	return 0
}

// Changed is closed when links or news have changed since it was called. It is
// nil before Join.
func (n *Node) Changed() <-chan struct{} {
	r, err := n.joined()
	if err != nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stirred
}
