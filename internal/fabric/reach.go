package fabric

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/ring"
)

// lookAgain is how often a way to a node is looked for while there is none. Links
// of other nodes do not cause a change here.
const lookAgain = 100 * time.Millisecond

// peer returns a process of another node, over a link or several hops. Process 0 is
// the owner of that node's links. It waits until ctx ends.
func (f *Fabric) peer(ctx context.Context, node, process int) (*link.Peer, error) {
	began := time.Now()
	for {
		f.mu.Lock()
		changed := f.changed
		f.mu.Unlock()
		if node > f.nodes() { // a member may have learnt the number while it waited
			return nil, fmt.Errorf("no node %q in this fabric, which has %s to %s: %w", spec.NodeName(node), spec.NodeName(1), spec.NodeName(f.nodes()), syscall.EHOSTUNREACH)
		}
		r := f.ring.Load() // nil as long as a member has met no owner
		var below <-chan struct{}
		if r != nil {
			below = r.Changed()
		}
		if f.soon(node) && ctx.Err() == nil && f.ctx.Err() == nil {
			f.wait(ctx, lookAgain, changed, nil)
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
		case f.ctx.Err() != nil:
			return nil, ErrClosed
		case ctx.Err() != nil:
			return nil, fmt.Errorf("%w: %w: %w", ctx.Err(), f.why(node), syscall.EHOSTUNREACH)
		case !errors.Is(err, ring.ErrUnreachable) && !errors.Is(err, link.ErrDown):
			return nil, err
		}
		if why := f.why(node); Misfit(why) && !f.retry(node, began) {
			return nil, fmt.Errorf("%w: %w", why, syscall.EHOSTUNREACH) // waiting would not help
		}
		f.wait(ctx, lookAgain, changed, below)
	}
}

// directWithin is how long a dial waits for a link to a neighbour that runs, since the
// link's state changed, before it takes another way. Connections that take another way
// stay there, frame by frame, and learn late of the neighbour's end.
const directWithin = 500 * time.Millisecond

// soon reports whether a link to a node is about to come up.
func (f *Fabric) soon(node int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	soon := false
	for _, l := range f.links {
		switch {
		case l.to != node:
			continue
		case l.up() || f.spec.Failover:
			return false
		case l.state == absent:
			// The neighbour did not run at the last check. It may have started
			// since.
			if reachable, err := l.by.reachable(l); err != nil || !reachable {
				continue
			}
			f.step(l, found)
		}
		soon = soon || l.err == nil && time.Since(l.since) < directWithin
	}
	return soon
}

// retry has a link to a node tried again that did not fit, and reports whether there is one of which the last try was before
// a time: another process may be there now.
func (f *Fabric) retry(node int, before time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	again := false
	for _, l := range f.links {
		if (l.to == node || l.kind == toOwner && !l.up()) && l.bySocket() && Misfit(l.err) && (l.state == asking || l.since.Before(before)) {
			again = true
			select {
			case l.hurry <- struct{}{}:
			default:
			}
		}
	}
	return again
}

// why returns why a node cannot be reached.
func (f *Fabric) why(node int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var why error
	for _, l := range f.links {
		if (l.to == node || l.kind == toOwner && !l.up()) && (why == nil || l.err != nil) {
			why = l.why()
			if l.state == absent && l.kind == toOwner && f.spec.TakesOver() {
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
func (l *linkEnd) why() error {
	switch {
	case l.state == absent && l.kind == toOwner:
		return fmt.Errorf("no process owns the links of %s: start one with nodes=N", spec.NodeName(l.to))
	case l.kind == toOwner && l.err != nil:
		return fmt.Errorf("link to the owner of the links of %s: %w", spec.NodeName(l.to), l.err)
	case l.deserted() && l.by.missing() != nil:
		return fmt.Errorf("link to %s: %w", spec.NodeName(l.to), l.by.missing())
	case l.deserted():
		return fmt.Errorf("no process of %s has come to its end of the bridge", spec.NodeName(l.to))
	case l.state == absent:
		return fmt.Errorf("%s is not there", spec.NodeName(l.to))
	case l.err != nil:
		return fmt.Errorf("link to %s: %w", spec.NodeName(l.to), l.err)
	}
	return fmt.Errorf("link to %s is just being made", spec.NodeName(l.to))
}
