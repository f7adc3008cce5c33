package ring

import (
	"slices"
	"time"
)

// A process that has no links to other hosts is a member of its host. Its link
// leads to the process that has them, the owner, which passes its frames on.

// leads reports whether a node may have links in direction d.
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
// does a frame of this node's own, see "The bubble rule" in the package comment.
// from is the lane whose turn it is, or nil. It returns false if the frame must
// wait. The caller holds mu.
func (l *inLane) enter(f *frame, body []byte, turn *outLane) bool {
	r := l.link.router
	switch {
	case f.src != l.link.id:
		r.drop(dropSource)
		return true
	case f.dst.Host() == r.host:
		r.drop(dropUnknownNode) // members of one host have bridges of their own
		return true
	case f.hops <= 1:
		r.drop(dropHops)
		return true
	}
	to := l.wayOut(f.dst.Host())
	if to == nil {
		r.drop(dropNoLink)
		return true
	}
	f.hops--
	o := to.out[l.index]
	switch o.own(f, body, l, turn == o) {
	case putWait:
		if !l.final {
			f.hops++
			return false
		}
		r.drop(dropNoLink)
	case putDown:
		r.drop(dropNoLink)
	case putStopped:
		r.drop(dropStopped)
	}
	return true
}

// wayOut returns the link to a host. It caches the last one until links or news
// change, so that it need not take the router's lock for each frame. The caller
// holds mu.
func (l *inLane) wayOut(host int) *Link {
	r := l.link.router
	if v := r.version.Load(); host != l.wayHost || v != l.wayVersion {
		l.way, _, _ = r.route(host)
		l.wayHost, l.wayVersion = host, v
	}
	return l.way
}

// serve implements ownSource for the lanes of members.
func (l *inLane) serve(o *outLane) {
	if l.drainFor(o) == l.link.opts.Slots {
		// More than a queueful came meanwhile, for other lanes. The caller has work
		// of its own, so another goroutine drains.
		go l.drain()
	}
}

// How long a process may give no credit until the frames for it that others sent are
// dropped, so that others' go on. One that has links to other hosts has more to do.
const (
	stallAfter     = 100 * time.Millisecond // a member
	stallNodeAfter = time.Second
)

// watchStall sees to it that the frames which others sent do not wait for long. The caller
// holds mu.
func (o *outLane) watchStall() {
	if o.watching || o.link.opts.noBubble {
		return
	}
	after := stallNodeAfter
	if o.link.direction == Down {
		after = stallAfter
	}
	o.watching = true
	o.watched = o.credit.Load()
	if o.stall == nil {
		o.stall = time.AfterFunc(after, o.stallCheck)
	} else {
		o.stall.Reset(after)
	}
}

// others are the lanes whose heads wait for this one. The caller holds mu.
func (o *outLane) others() []*inLane {
	all := slices.Clone(o.fwd)
	for _, s := range o.waiting {
		if l, member := s.(*inLane); member {
			all = append(all, l)
		}
	}
	return all
}

// stallCheck drops what waits if no credit has come for as long as that, and has it
// dropped from then on until some comes.
func (o *outLane) stallCheck() {
	o.mu.Lock()
	o.watching = false
	o.free()
	others := o.others()
	if o.down || len(others) == 0 {
		o.mu.Unlock()
		return
	}
	if o.credit.Load() != o.watched {
		o.watchStall()
		o.mu.Unlock()
		return
	}
	o.stalled = true
	o.mu.Unlock()
	for _, l := range others {
		l.drain()
		l.pollOnward()
	}
}
