package fabric

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/internal/greeting"
	"github.com/ntbnet/ntbnet/internal/heapmem"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/internal/status"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ring"
)

// nodeLink is this node's end of one wire. It is made, and made again, as long as the
// node runs. All fields except wire, to and by are guarded by
// hosts.mu.
//
// Over Unix sockets either side may begin, by connecting a cable. A node begins as soon as its
// neighbour runs. If the neighbour does not run, the node sleeps, since the
// neighbour will begin. If both begin, the node with the lower number goes on:
// while it has asked itself, it answers "busy". After that the link is "being
// made". On each side it is so at most once at a time.
type nodeLink struct {
	wire spec.Wire // immutable; zero for the link of a member to the owner
	to   int       // the neighbour, or this node itself; immutable
	by   opener    // immutable

	ring   *ring.Link      // from the last time that the link came up
	half   *heapmem.Device // its device, with option puts
	asking bool            // we have connected and wait for the answer
	making bool            // a cable is becoming a bridge that is then brought up
	absent bool            // the neighbour did not run at the last check
	err    error           // why it is not up
	ups    int             // how often it came up
	since  time.Time       // when its state last changed
}

// uplink reports whether the link is that of a member to the owner.
func (l *nodeLink) uplink() bool { return l.wire.Number == 0 }

// direction returns the direction of the link from this node.
func (l *nodeLink) direction(s *spec.Spec) ring.Direction {
	if l.uplink() {
		return ring.Up
	}
	switch l.wire.Side {
	case spec.Direct:
		return ring.Direct
	case spec.Right:
		return ring.Right
	}
	return ring.Left
}

// Pauses between tries to make a link to a neighbour that runs.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = time.Second
)

// up reports whether the link is up. The caller holds mu.
func (l *nodeLink) up() bool { return l.ring != nil && l.ring.Err() == nil && l.ring.Peer().Up() }

// desertedAfter is how long after a try a neighbour that was refused counts as gone. It tries
// again within lastPause.
const desertedAfter = 2 * lastPause

// deserted reports whether nobody uses the other end of a bridge, as far as one can know. The
// caller holds mu.
func (l *nodeLink) deserted() bool {
	return l.asking && !l.bySocket() && (!Misfit(l.err) || time.Since(l.since) > desertedAfter)
}

// state returns one of these states. The caller holds mu.
func (l *nodeLink) state() string {
	switch {
	case l.up():
		return status.Up
	case l.making, l.asking:
		return status.Making
	case l.absent:
		return status.Absent
	}
	return status.Down
}

// change wakes all that wait for a change of a link. The caller holds mu.
func (h *hosts) change(l *nodeLink) {
	l.since = time.Now()
	close(h.changed)
	h.changed = make(chan struct{})
}

// keep makes the link whenever it is down and the neighbour runs.
func (h *hosts) keep(l *nodeLink) {
	pause := firstPause
	var last *ring.Link // that has ended
	for h.ctx.Err() == nil {
		h.mu.Lock()
		changed, up, state := h.changed, l.ring, l.state()
		h.mu.Unlock()
		switch {
		case state == status.Up, state != status.Making && up != last: // it may have ended already
			select {
			case <-up.Done():
				h.mu.Lock()
				if l.ring == up {
					l.err = up.Err()
					h.change(l)
				}
				h.mu.Unlock()
				l.by.ended(l, up.Err())
			case <-h.ctx.Done():
			}
			last, pause = up, firstPause
			continue
		case state == status.Making:
			h.wait(h.ctx, 0, changed, nil)
			continue
		}
		// changed was taken before this check. A neighbour that starts after it
		// finds us, and the result closes changed.
		reachable, err := l.by.reachable(l)
		h.mu.Lock()
		l.absent = err == nil && !reachable
		if err != nil {
			l.err = err
		}
		h.mu.Unlock()
		if err == nil && !reachable {
			h.wait(h.ctx, 0, changed, nil)
			pause = firstPause
			continue
		}
		if err == nil && l.by.open(l) {
			continue
		}
		h.wait(h.ctx, pause, nil, nil)
		pause = min(2*pause, lastPause)
	}
}

// wait waits for a change of a link, for d if that is not 0, or until ctx ends.
func (h *hosts) wait(ctx context.Context, d time.Duration, changed, below <-chan struct{}) {
	var late <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-changed:
	case <-below:
	case <-late:
	case <-ctx.Done():
	case <-h.ctx.Done():
	}
}

// begin asks the neighbour for the link. It returns false if there is none and the
// next try should wait.
func (h *hosts) begin(l *nodeLink) bool {
	ctx, cancel := context.WithTimeout(h.ctx, linkTimeout)
	defer cancel()
	h.mu.Lock()
	if s := l.state(); s == status.Up || s == status.Making {
		h.mu.Unlock()
		return true
	}
	l.asking = true
	h.mu.Unlock()

	mine := h.greeting(greeting.WantLink)
	mine.Wire = l.wire.Number
	if l.uplink() {
		mine.Want = greeting.WantUplink
	}
	var answer *greeting.Message
	var release func() bool
	c, err := h.registry.connect(ctx, l.to, 0)
	if err == nil {
		answer, release, err = greeting.Ask(ctx, c, mine)
	}
	busy := false
	if err == nil {
		defer release()
		busy = answer.Busy
		err = mine.Verdict(answer)
		if err == nil && l.uplink() {
			err = h.adopt(answer)
		}
		if errors.Is(err, greeting.ErrMismatch) {
			h.refused.add(err)
		}
	}

	h.mu.Lock()
	l.asking = false
	up := l.making || l.up()
	goOn := err == nil && !busy && !up
	l.making = l.making || goOn
	if err != nil {
		l.err = err
	}
	h.change(l)
	h.mu.Unlock()
	if !goOn {
		if answer != nil {
			c.Close()
		}
		return up
	}
	who, err := c.Peer() // later the device owns the cable
	if err != nil {
		c.Close()
		h.failed(l, err)
		return false
	}
	dev, err := h.bridge(c, who, mine.Want)
	if !release() && err == nil {
		dev.Close()
		err = ctx.Err()
	}
	return h.finish(ctx, l, dev, err)
}

// take begins to make the link for a neighbour that asks. It returns false if the
// neighbour has to wait for us.
func (h *hosts) take(l *nodeLink) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l.making || l.asking && h.spec.Node < l.to {
		return false
	}
	// The link may be up still, if it is not yet known to be down. Or the
	// neighbour asked long ago. Then it hangs up now, and the link stays up.
	l.making = true
	h.change(l)
	return true
}

// failed ends what take began, with an error.
func (h *hosts) failed(l *nodeLink, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l.making = false
	if err != nil {
		l.err = err
	}
	h.change(l)
}

// finish brings the link up over a bridge on which both sides have agreed, and
// reports whether it did. err is the error of making the bridge.
func (h *hosts) finish(ctx context.Context, l *nodeLink, dev ntb.Device, err error) bool {
	h.refused.half(err)
	if err != nil {
		h.failed(l, err)
		return false
	}
	h.mu.Lock()
	old := l.ring
	h.mu.Unlock()
	if old != nil {
		old.Close() // the neighbour has made the link again, so the old one must be down
		<-old.Done()
	}
	made, err := h.ring.Load().Link(ctx, dev, l.direction(h.spec))
	if err == nil && made.ID().Host() != l.to {
		err = fmt.Errorf("fabric: %v answered for node %d: %w", made.ID(), l.to, link.ErrProtocol)
		made.Close()
	}
	if err != nil {
		h.failed(l, err)
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	l.ring, l.making, l.absent, l.err = made, false, false, nil
	l.ups++
	h.change(l)
	return true
}

// lookAgain is how often a way to a node is looked for while there is none. Links
// of other nodes do not cause a change here.
const lookAgain = 100 * time.Millisecond

// peer returns a process of another node, over a link or several hops. Process 0 is
// the owner of that node's links. It waits until ctx ends.
func (h *hosts) peer(ctx context.Context, node, process int) (*link.Peer, error) {
	for {
		h.mu.Lock()
		changed := h.changed
		h.mu.Unlock()
		if node > h.nodes() { // a member may have learnt the number while it waited
			return nil, fmt.Errorf("no node %q in this fabric, which has %s to %s: %w", spec.NodeName(node), spec.NodeName(1), spec.NodeName(h.nodes()), syscall.EHOSTUNREACH)
		}
		r := h.ring.Load() // nil as long as a member has met no owner
		var below <-chan struct{}
		if r != nil {
			below = r.Changed()
		}
		if h.soon(node) && ctx.Err() == nil && h.ctx.Err() == nil {
			h.wait(ctx, lookAgain, changed, nil)
			continue
		}
		id := link.MakeID(node, process)
		if r != nil && process == 0 {
			id = r.Owner(node)
		}
		var p *link.Peer
		err := ring.ErrUnreachable
		if r != nil && id != 0 {
			p, err = r.Peer(ctx, id)
		}
		switch {
		case err == nil:
			return p, nil
		case h.ctx.Err() != nil:
			return nil, ErrClosed
		case ctx.Err() != nil:
			return nil, fmt.Errorf("%w: %w: %w", ctx.Err(), h.why(node), syscall.EHOSTUNREACH)
		case !errors.Is(err, ring.ErrUnreachable) && !errors.Is(err, link.ErrDown):
			return nil, err
		}
		if why := h.why(node); Misfit(why) {
			return nil, fmt.Errorf("%w: %w", why, syscall.EHOSTUNREACH) // waiting would not help
		}
		h.wait(ctx, lookAgain, changed, below)
	}
}

// directWithin is how long a dial waits for a link to a neighbour that runs, since the
// link's state changed, before it takes another way. Connections that take another way
// stay there, frame by frame, and learn late of the neighbour's end.
const directWithin = 500 * time.Millisecond

// soon reports whether a link to a node is about to come up.
func (h *hosts) soon(node int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	soon := false
	for _, l := range h.links {
		switch {
		case l.to != node:
			continue
		case l.up() || h.spec.Failover:
			return false
		case l.absent && !l.making:
			// The neighbour did not run at the last check. It may have started
			// since.
			if reachable, err := l.by.reachable(l); err != nil || !reachable {
				continue
			}
			l.absent = false
			h.change(l)
		}
		soon = soon || l.err == nil && time.Since(l.since) < h.direct
	}
	return soon
}

// why returns why a node cannot be reached.
func (h *hosts) why(node int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var why error
	for _, l := range h.links {
		if (l.to == node || l.uplink() && !l.up()) && (why == nil || l.err != nil) {
			why = l.why()
			if l.absent && l.uplink() && h.spec.Succeeds() {
				why = fmt.Errorf("no process owns the links of %s: this one tries to", spec.NodeName(l.to))
			}
		}
	}
	if why == nil {
		why = fmt.Errorf("no way leads to %s", spec.NodeName(node))
	}
	return why
}

// why returns why the link is not up. The caller holds mu.
func (l *nodeLink) why() error {
	switch {
	case l.absent && l.uplink():
		return fmt.Errorf("no process owns the links of %s: start one with nodes=N", spec.NodeName(l.to))
	case l.uplink() && l.err != nil:
		return fmt.Errorf("link to the owner of the links of %s: %w", spec.NodeName(l.to), l.err)
	case l.deserted() && l.by.missing() != nil:
		return fmt.Errorf("link to %s: %w", spec.NodeName(l.to), l.by.missing())
	case l.deserted():
		return fmt.Errorf("no process of %s has come to its end of the bridge", spec.NodeName(l.to))
	case l.absent:
		return fmt.Errorf("%s is not there", spec.NodeName(l.to))
	case l.err != nil:
		return fmt.Errorf("link to %s: %w", spec.NodeName(l.to), l.err)
	}
	return fmt.Errorf("link to %s is just being made", spec.NodeName(l.to))
}
