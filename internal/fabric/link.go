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
func (f *Fabric) keep(l *linkEnd) {
	pause := firstPause
	for f.ctx.Err() == nil {
		f.mu.Lock()
		changed, state, link := f.changed, l.state, l.ring
		f.mu.Unlock()
		switch state {
		case up:
			select {
			case <-link.Done():
				f.mu.Lock()
				if l.ring == link && f.step(l, ended) {
					l.err = link.Err()
				}
				f.mu.Unlock()
				l.by.ended(l, link.Err())
			case <-f.ctx.Done():
			}
			pause = firstPause
			continue
		case asking, making:
			f.wait(f.ctx, 0, changed, nil)
			continue
		}
		// changed was taken before this check. A neighbour that starts after it
		// finds us, and the result closes changed.
		reachable, err := l.by.reachable(l)
		if err == nil && !reachable {
			f.note(l, missed, nil)
			f.wait(f.ctx, 0, changed, nil)
			pause = firstPause
			continue
		}
		f.note(l, found, err)
		if err == nil && l.by.open(l) {
			continue
		}
		f.wait(f.ctx, pause, nil, l.hurry)
		pause = min(2*pause, lastPause)
	}
}

// wait waits for a change of a link, for d if that is not 0, or until ctx ends.
func (f *Fabric) wait(ctx context.Context, d time.Duration, changed, below <-chan struct{}) {
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
	case <-f.ctx.Done():
	}
}

// begin asks the other end for the link. It returns false if there is none and the
// next try should wait.
func (f *Fabric) begin(l *linkEnd) bool {
	ctx, cancel := context.WithTimeout(f.ctx, linkTimeout)
	defer cancel()
	if !f.note(l, ask, nil) {
		return true
	}
	mine := f.greeting(l.kind.want())
	mine.Wire = l.wire.Number
	var answer *greeting.Message
	var release func() bool
	c, who, err := f.connect(ctx, l)
	if err == nil {
		answer, release, err = greeting.Ask(ctx, c, mine)
	}
	busy := false
	if err == nil {
		defer release()
		busy = answer.Busy && l.kind == toNode
		err = mine.Verdict(answer)
		if err == nil && l.kind == toOwner {
			err = f.adopt(answer)
		}
		if errors.Is(err, greeting.ErrMismatch) && l.kind != toProcess { // there the dial gets it
			f.refused.add(err)
		}
	}

	f.mu.Lock()
	if err != nil {
		l.err = err
	}
	goOn := err == nil && !busy && f.step(l, agreed)
	if !goOn {
		f.step(l, refused) // unless the neighbour has asked meanwhile
	}
	its := l.state != down
	f.mu.Unlock()
	if !goOn {
		if answer != nil {
			c.Close()
		}
		return its
	}
	dev, err := f.bridge(c, who, l.kind)
	if !release() && err == nil {
		dev.Close()
		err = ctx.Err()
	}
	if l.kind != toProcess {
		f.refused.half(err)
	}
	return f.finish(ctx, l, dev, err) == nil
}

// connect makes a cable to the process at the other end of a link, which is of a user.
func (f *Fabric) connect(ctx context.Context, l *linkEnd) (c cable, who Peer, err error) {
	if l.kind == toProcess {
		c, err = f.registry.connectTo(ctx, l.process, l.users)
	} else {
		c, err = f.registry.connect(ctx, l.to, 0)
	}
	if err == nil {
		if who, err = c.Peer(); err != nil { // later the device owns the cable
			c.Close()
		}
	}
	return c, who, err
}

// fail ends the making of a link, with an error. If the neighbour asked long ago, and has hung up since, the link from
// before is up still.
func (f *Fabric) fail(l *linkEnd, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		l.err = err
	}
	if l.up() {
		f.step(l, kept)
	} else {
		f.step(l, failed)
	}
}

// finish brings the link up over a bridge on which both sides have agreed, or returns
// why it is not up. err is the error of making the bridge.
func (f *Fabric) finish(ctx context.Context, l *linkEnd, dev ntb.Device, err error) error {
	if err != nil {
		f.fail(l, err)
		return err
	}
	f.mu.Lock()
	old := l.ring
	f.mu.Unlock()
	if old != nil {
		old.Close() // the neighbour has made the link again, so the old one must be down
		<-old.Done()
	}
	peer, came, err := f.bringUp(ctx, l, dev)
	if err != nil {
		f.fail(l, err)
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	l.peer, l.ring, l.err = peer, came, nil
	l.ups++
	f.step(l, made)
	return nil
}

// bringUp brings a link up over a device, if it is the process at the other end that answers there.
func (f *Fabric) bringUp(ctx context.Context, l *linkEnd, dev ntb.Device) (p *link.Peer, came *ring.Link, err error) {
	if l.kind == toProcess {
		if p, err = f.node.Up(ctx, dev); err == nil {
			if err = l.check(p.ID()); err != nil {
				p.Fail(err)
			}
		}
		return p, nil, err
	}
	if came, err = f.ring.Load().Link(ctx, dev, l.direction()); err != nil {
		return nil, nil, err
	}
	if err = l.check(came.ID()); err != nil {
		came.Close()
	}
	return came.Peer(), came, err
}
