package fabric

import (
	"context"
	"fmt"
	"slices"
	"syscall"

	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/ntb"
)

// target is what a link is made to. While that does not answer, another process may get its number.
type target struct {
	id     link.ID
	cables string // which process has the number
	users  string // of which it must be, as a list
}

// makingPeer is a link that is being made. Several callers may wait for it.
type makingPeer struct {
	done chan struct{}
	peer *link.Peer // constant once done is closed
	err  error
}

// Owner returns the link to the process of another host that owns that host's
// links. That process knows which one holds a port there. Owner waits until ctx
// ends, since that host may be about to start.
func (f *Fabric) Owner(ctx context.Context, host int) (*link.Peer, error) {
	if !f.net.several() {
		return nil, fmt.Errorf("fabric: host %d: %w", host, syscall.EHOSTUNREACH)
	}
	return f.net.peer(ctx, host, 0)
}

// Peer returns the link to a node, and makes it if there is none. For a node of
// another host it waits until ctx ends, since that host may be about to start.
func (f *Fabric) Peer(ctx context.Context, id link.ID) (*link.Peer, error) {
	return f.PeerOf(ctx, id, nil)
}

// PeerOf is Peer for a node that, if it is of this host, must be of one of the users, if these are
// not nil. If it is not, the error wraps ErrOtherUser, without waiting for anything that the node
// does.
func (f *Fabric) PeerOf(ctx context.Context, id link.ID, users []int) (*link.Peer, error) {
	if f.net.several() && id.Host() != f.net.spec.Node {
		return f.net.peer(ctx, id.Host(), id.Process())
	}
	if r := f.net.ring.Load(); r != nil {
		// The link to the owner, or to a member, also leads to a process of this
		// host. If that takes long, a link of its own is made.
		soon, cancel := context.WithTimeout(ctx, linkTimeout)
		defer cancel()
		if p, err := r.Peer(soon, id); err == nil && isOf(p, users) {
			return p, nil
		}
	}
	p, err := f.usable(id, users)
	if p != nil || err != nil {
		return p, err
	}
	cables, err := f.net.registry.Cables(id.Process(), users)
	if err != nil {
		return nil, err
	}
	m, err := f.join(target{id, cables, fmt.Sprint(users)}, users)
	if err != nil {
		return nil, err
	}
	select {
	case <-m.done:
		return m.peer, m.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// usable returns the link to a node of one of the users that is up, or nil.
func (f *Fabric) usable(id link.ID, users []int) (*link.Peer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.usableLocked(id, users)
}

func (f *Fabric) usableLocked(id link.ID, users []int) (*link.Peer, error) {
	if f.closed {
		return nil, ErrClosed
	}
	if p := f.peers[id]; p != nil && p.Up() && isOf(p, users) {
		return p, nil
	}
	return nil, nil
}

// isOf reports whether a peer is of one of the users, or these are nil.
func isOf(p *link.Peer, users []int) bool {
	who := p.Caps().User
	return users == nil || who != nil && slices.Contains(users, who.UID)
}

// join returns the link that is being made, or begins to make it.
func (f *Fabric) join(to target, users []int) (*makingPeer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, err := f.usableLocked(to.id, users)
	if err != nil {
		return nil, err
	}
	if p != nil { // since it was looked for
		m := &makingPeer{done: make(chan struct{}), peer: p}
		close(m.done)
		return m, nil
	}
	m := f.making[to]
	if m == nil {
		m = &makingPeer{done: make(chan struct{})}
		f.making[to] = m
		f.wg.Add(1)
		// The link is not bound to a caller's context, since others may wait for it.
		go f.makeLink(to, users, m)
	}
	return m, nil
}

func (f *Fabric) makeLink(to target, users []int, m *makingPeer) {
	defer f.wg.Done()
	id := to.id
	ctx, cancel := context.WithTimeout(f.ctx, linkTimeout)
	defer cancel()
	dev, err := f.net.connect(ctx, id.Process(), users)
	if err == nil {
		m.peer, err = f.node.Up(ctx, dev)
	}
	if err == nil && m.peer.ID() != id {
		err = fmt.Errorf("fabric: %v answered for %v: %w", m.peer.ID(), id, link.ErrProtocol)
		m.peer.Fail(err)
	}
	m.err = err
	f.mu.Lock()
	delete(f.making, to)
	if err == nil {
		f.peers[id] = m.peer
	}
	f.mu.Unlock()
	close(m.done)
}

// accepted brings up a link that another process makes. If there is none yet, our
// own dials use it as well.
func (f *Fabric) accepted(dev ntb.Device) {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		dev.Close()
		return
	}
	f.wg.Add(1)
	f.mu.Unlock()
	go func() {
		defer f.wg.Done()
		ctx, cancel := context.WithTimeout(f.ctx, linkTimeout)
		defer cancel()
		p, err := f.node.Up(ctx, dev)
		f.net.refused.check(err)
		if err != nil {
			return // the process that made it gets the error
		}
		f.mu.Lock()
		if old := f.peers[p.ID()]; old == nil || !old.Up() {
			f.peers[p.ID()] = p
		}
		f.mu.Unlock()
	}()
}
