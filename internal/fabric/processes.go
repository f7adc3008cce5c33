package fabric

import (
	"context"
	"fmt"
	"slices"
	"syscall"

	"github.com/ntbnet/ntbnet/internal/link"
)

// target is what a link is made to. While that does not answer, another process may get its number.
type target struct {
	id     link.ID
	cables string // which process has the number
	users  string // of which it must be, as a list
}

// Owner returns the link to the process of another host that owns that host's
// links. That process knows which one holds a port there. Owner waits until ctx
// ends, since that host may be about to start.
func (f *Fabric) Owner(ctx context.Context, host int) (*link.Peer, error) {
	if !f.several() {
		return nil, fmt.Errorf("fabric: host %d: %w", host, syscall.EHOSTUNREACH)
	}
	return f.peer(ctx, host, 0)
}

// Peer returns the link to a node, and makes it if there is none. For a node of
// another host it waits until ctx ends, since that host may be about to start. A node of this host
// must be of one of the users, if these are not nil. If it is not, the error wraps ErrOtherUser,
// without waiting for anything that the node does.
func (f *Fabric) Peer(ctx context.Context, id link.ID, users []int) (*link.Peer, error) {
	if f.several() && id.Host() != f.spec.Node {
		return f.peer(ctx, id.Host(), id.Process())
	}
	if r := f.ring.Load(); r != nil {
		// The link to the owner, or to a member, also leads to a process of this
		// host. If that takes long, a link of its own is made.
		soon, cancel := context.WithTimeout(ctx, linkTimeout)
		defer cancel()
		if p, err := r.Peer(soon, id); err == nil && isOf(p, users) {
			return p, nil
		}
	}
	return f.process(ctx, id, users)
}

// process returns the link to a process of this host of one of the users. It makes one if none is up.
func (f *Fabric) process(ctx context.Context, id link.ID, users []int) (*link.Peer, error) {
	to := target{id: id, users: fmt.Sprint(users)}
	l, err := f.usable(to, users, false)
	if l == nil && err == nil {
		if to.cables, err = f.registry.Cables(id.Process(), users); err == nil {
			l, err = f.usable(to, users, true)
		}
	}
	if err != nil {
		return nil, err
	}
	select {
	case <-l.tried:
		return l.peer, l.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// usable returns the link to a process of one of the users that is up, or nil. With begin it returns the one that is
// being made in place of nil, and begins to make it.
func (f *Fabric) usable(to target, users []int, begin bool) (*linkEnd, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, ErrClosed
	}
	l := f.processes[to.id]
	if l != nil && !l.up() {
		f.step(l, ended)
		delete(f.processes, to.id)
	} else if l != nil && isOf(l.peer, users) {
		return l, nil
	}
	l = f.making[to]
	if l == nil && begin {
		l = &linkEnd{kind: toProcess, to: to.id.Host(), process: to.id.Process(), users: users, tried: make(chan struct{})}
		f.making[to] = l
		// The link is not bound to a caller's context, since others may wait for it.
		f.wg.Go(func() {
			f.begin(l)
			f.mu.Lock()
			delete(f.making, to)
			if l.state == up {
				f.processes[to.id] = l
			}
			f.mu.Unlock()
			close(l.tried)
		})
	}
	return l, nil
}

// enter has dials use a link that a process of this host has made, unless theirs is up.
func (f *Fabric) enter(l *linkEnd) {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(l.tried)
	if old := f.processes[l.peer.ID()]; old == nil || !old.up() {
		f.processes[l.peer.ID()] = l
	}
}

// isOf reports whether a peer is of one of the users, or these are nil.
func isOf(p *link.Peer, users []int) bool {
	who := p.Caps().User
	return users == nil || who != nil && slices.Contains(users, who.UID)
}
