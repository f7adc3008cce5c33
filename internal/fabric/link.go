package fabric

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ntbnet/ntbnet/internal/greeting"
	"github.com/ntbnet/ntbnet/internal/heapmem"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/internal/status"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ring"
)

// nodeLink is this node's end of one wire, or of the link of a member and the owner. It is made, and made again, as long as
// both run. Fields that are not immutable are guarded by hosts.mu.
//
// Over Unix sockets either side may begin, by connecting a cable. A node begins as soon as its
// neighbour runs. If the neighbour does not run, the node sleeps, since the
// neighbour will begin. If both begin, the node with the lower number goes on.
type nodeLink struct {
	wire  spec.Wire // immutable; zero for the link of a member and the owner
	to    int       // the neighbour, or this node itself; immutable
	first bool      // this node goes on if both begin; immutable
	by    opener    // nil for a member, which makes the link; immutable

	member *member // at the other end; nil for others; immutable

	hurry chan struct{} // has keep try again now, instead of after its pause; of one element

	state state           // of the link that is made; the one before may be up meanwhile
	ring  *ring.Link      // from the last time that the link came up
	half  *heapmem.Device // its device, with option puts
	err   error           // why it is not up
	ups   int             // how often it came up
	since time.Time       // when its state last changed
}

// member is a member of this host at the other end of a link.
type member struct {
	process int
	pid     int // as the member says
	uid     int // as the kernel says
}

// uplink reports whether the link is that of a member to the owner.
func (l *nodeLink) uplink() bool { return l.wire.Number == 0 && l.member == nil }

// check returns an error unless it is the node or member at the other end that has an id.
func (l *nodeLink) check(id link.ID) error {
	switch {
	case id.Host() != l.to:
		return fmt.Errorf("fabric: %v answered for node %d: %w", id, l.to, link.ErrProtocol)
	case l.member != nil && id.Process() != l.member.process:
		return fmt.Errorf("%w: %v greeted as process %d", greeting.ErrMismatch, id, l.member.process)
	}
	return nil
}

// direction returns the direction of the link from this node.
func (l *nodeLink) direction(s *spec.Spec) ring.Direction {
	switch {
	case l.member != nil:
		return ring.Down
	case l.uplink():
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
	return l.state == asking && !l.bySocket() && (!Misfit(l.err) || time.Since(l.since) > desertedAfter)
}

// shown returns the state for others. The caller holds mu.
func (l *nodeLink) shown() string {
	switch {
	case l.up():
		return status.Up
	case l.state == up: // keep is about to learn that it has ended
		return status.Down
	}
	return l.state.String()
}

// step changes the state of a link by an event, and wakes all that wait for a change. It returns false if the event may not
// happen in this state. The caller holds mu.
func (h *hosts) step(l *nodeLink, e event) bool {
	next, ok := l.state.after(e, l.first)
	if ok && next != l.state {
		l.state, l.since = next, time.Now()
		if next == absent || next == making {
			l.err = nil // it was that of a process which has gone
		}
		h.change()
	}
	return ok
}

// change wakes all that wait for a change of a link. The caller holds mu.
func (h *hosts) change() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// keep makes the link whenever it is down and the neighbour runs.
func (h *hosts) keep(l *nodeLink) {
	pause := firstPause
	for h.ctx.Err() == nil {
		h.mu.Lock()
		changed, state, link := h.changed, l.state, l.ring
		h.mu.Unlock()
		switch state {
		case up:
			select {
			case <-link.Done():
				h.mu.Lock()
				if l.ring == link && h.step(l, ended) {
					l.err = link.Err()
				}
				h.mu.Unlock()
				l.by.ended(l, link.Err())
			case <-h.ctx.Done():
			}
			pause = firstPause
			continue
		case asking, making:
			h.wait(h.ctx, 0, changed, nil)
			continue
		}
		// changed was taken before this check. A neighbour that starts after it
		// finds us, and the result closes changed.
		reachable, err := l.by.reachable(l)
		h.mu.Lock()
		if err != nil {
			l.err = err
		}
		if err == nil && !reachable {
			h.step(l, missed)
		} else {
			h.step(l, found)
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
		h.wait(h.ctx, pause, nil, l.hurry)
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
	begins := h.step(l, ask)
	h.mu.Unlock()
	if !begins {
		return true
	}

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
	if err != nil {
		l.err = err
	}
	goOn := err == nil && !busy && h.step(l, agreed)
	if !goOn {
		h.step(l, refused) // unless the neighbour has asked meanwhile
	}
	its := l.state != down
	h.mu.Unlock()
	if !goOn {
		if answer != nil {
			c.Close()
		}
		return its
	}
	who, err := c.Peer() // later the device owns the cable
	if err != nil {
		c.Close()
		h.fail(l, err)
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
	return h.step(l, asked)
}

// fail ends the making of a link, with an error. If the neighbour asked long ago, and has hung up since, the link from
// before is up still.
func (h *hosts) fail(l *nodeLink, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		l.err = err
	}
	if l.up() {
		h.step(l, kept)
	} else {
		h.step(l, failed)
	}
}

// finish brings the link up over a bridge on which both sides have agreed, and
// reports whether it did. err is the error of making the bridge.
func (h *hosts) finish(ctx context.Context, l *nodeLink, dev ntb.Device, err error) bool {
	h.refused.half(err)
	if err != nil {
		h.fail(l, err)
		return false
	}
	h.mu.Lock()
	old := l.ring
	h.mu.Unlock()
	if old != nil {
		old.Close() // the neighbour has made the link again, so the old one must be down
		<-old.Done()
	}
	came, err := h.ring.Load().Link(ctx, dev, l.direction(h.spec))
	if err == nil {
		if err = l.check(came.ID()); err != nil {
			came.Close()
		}
	}
	if err != nil {
		h.fail(l, err)
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	l.ring, l.err = came, nil
	l.ups++
	h.step(l, made)
	return true
}
