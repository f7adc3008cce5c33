package ring

import "github.com/ntbnet/ntbnet/internal/frame"

// A process that has no links to other hosts is a member of its host. Its link
// leads to the process that has them, the owner, which passes its frames on.

// leads reports whether a process may have links in direction d.
func (o *Options) leads(d Direction) bool {
	switch {
	case d == Up || o.Member:
		return d == Up && o.Member
	case d == Down:
		return true
	}
	return (d == Direct) == (o.Topology == Mesh) && d <= Direct
}

// enter puts a frame of a member into the link that leads to its destination, as it
// does a frame of this process' own, see "The bubble rule" in the package comment. It returns
// what became of it. The caller holds mu.
func (l *inLane) enter(f *frame.Header, body []byte) result {
	r := l.link.router
	switch {
	case f.Src != l.link.id:
		r.drop(frame.DropSource)
		return headWent
	case f.Dst.Host() == r.host:
		r.drop(frame.DropUnknownNode) // members of one host have bridges of their own
		return headWent
	case f.Hops <= 1:
		r.drop(frame.DropHops)
		return headWent
	}
	to := l.nextHopTo(f.Dst.Host(), f.Epoch)
	if to == nil {
		r.drop(frame.DropNoLink)
		return headWent
	}
	return l.passOn(to, f, body, true)
}

// nextHopTo returns the link with which the route to a host begins for a tunnel with an epoch. It
// caches the last one until links or link states change, so that it need not take the router's
// lock for each frame. The caller holds mu.
func (l *inLane) nextHopTo(host int, epoch uint32) *Link {
	r := l.link.router
	cached := &l.cached[epoch>>31]
	if v := r.version.Load(); host != cached.host || v != cached.version {
		to, _, _ := r.route(host, epoch)
		*cached = nextHopCache{to, host, v}
	}
	return cached.link
}
