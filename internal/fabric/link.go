package fabric

import (
	"context"
	"errors"
	"time"

	"github.com/ntbnet/ntbnet/internal/greeting"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ring"
)

// Pauses between tries to make a link to a neighbour that runs.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = time.Second
)

// keep makes the link whenever it is down and the neighbour runs.
func (h *hosts) keep(l *linkEnd) {
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

// begin asks the other end for the link. It returns false if there is none and the
// next try should wait.
func (h *hosts) begin(l *linkEnd) bool {
	ctx, cancel := context.WithTimeout(h.ctx, linkTimeout)
	defer cancel()
	h.mu.Lock()
	begins := h.step(l, ask)
	h.mu.Unlock()
	if !begins {
		return true
	}

	mine := h.greeting(l.kind.want())
	mine.Wire = l.wire.Number
	var answer *greeting.Message
	var release func() bool
	c, who, err := h.connect(ctx, l)
	if err == nil {
		answer, release, err = greeting.Ask(ctx, c, mine)
	}
	busy := false
	if err == nil {
		defer release()
		busy = answer.Busy && l.kind == toNode
		err = mine.Verdict(answer)
		if err == nil && l.kind == toOwner {
			err = h.adopt(answer)
		}
		if errors.Is(err, greeting.ErrMismatch) && l.kind != toProcess { // there the dial gets it
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
	dev, err := h.bridge(c, who, l.kind)
	if !release() && err == nil {
		dev.Close()
		err = ctx.Err()
	}
	if l.kind != toProcess {
		h.refused.half(err)
	}
	return h.finish(ctx, l, dev, err)
}

// connect makes a cable to the process at the other end of a link, which is of a user.
func (h *hosts) connect(ctx context.Context, l *linkEnd) (c cable, who Peer, err error) {
	if l.kind == toProcess {
		c, err = h.registry.connectTo(ctx, l.process, l.users)
	} else {
		c, err = h.registry.connect(ctx, l.to, 0)
	}
	if err == nil {
		if who, err = c.Peer(); err != nil { // later the device owns the cable
			c.Close()
		}
	}
	return c, who, err
}

// take begins to make the link for a neighbour that asks. It returns false if the
// neighbour has to wait for us.
func (h *hosts) take(l *linkEnd) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.step(l, asked)
}

// fail ends the making of a link, with an error. If the neighbour asked long ago, and has hung up since, the link from
// before is up still.
func (h *hosts) fail(l *linkEnd, err error) {
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
func (h *hosts) finish(ctx context.Context, l *linkEnd, dev ntb.Device, err error) bool {
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
	peer, came, err := h.bringUp(ctx, l, dev)
	if err != nil {
		h.fail(l, err)
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	l.peer, l.ring, l.err = peer, came, nil
	l.ups++
	h.step(l, made)
	return true
}

// bringUp brings a link up over a device, if it is the process at the other end that answers there.
func (h *hosts) bringUp(ctx context.Context, l *linkEnd, dev ntb.Device) (p *link.Peer, came *ring.Link, err error) {
	if l.kind == toProcess {
		if p, err = h.node.Up(ctx, dev); err == nil {
			if err = l.check(p.ID()); err != nil {
				p.Fail(err)
			}
		}
		return p, nil, err
	}
	if came, err = h.ring.Load().Link(ctx, dev, l.direction()); err != nil {
		return nil, nil, err
	}
	if err = l.check(came.ID()); err != nil {
		came.Close()
	}
	return came.Peer(), came, err
}
