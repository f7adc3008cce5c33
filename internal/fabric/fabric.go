package fabric

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"syscall"

	"github.com/ntbnet/ntbnet/internal/hostdir"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ring"
)

// ErrClosed reports that the fabric is closed.
var ErrClosed = errors.New("fabric: closed")

// ErrOtherUser reports that a process is not of a user that was asked for.
var ErrOtherUser = hostdir.ErrOtherUser

// Fabric is this process' membership in a fabric.
type Fabric struct {
	Claims            // of net's registry; immutable
	node   *link.Node // immutable
	net    *hosts     // immutable

	mu     lock.Mutex[lock.Fabric]
	peers  map[link.ID]*link.Peer // the links that dials use; guarded by mu
	making map[making]*makingPeer // guarded by mu
	closed bool                   // guarded by mu
	wg     sync.WaitGroup         // links that are being brought up
	ctx    context.Context        // Close ends it
	cancel context.CancelFunc
}

// making is what a link is made to. While that does not answer, another process may get its number.
type making struct {
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

// PublishedSocket is a TCP socket for which a process of this host accepts connections.
type PublishedSocket = hostdir.Socket

// Open joins the fabric that spec names. It calls start before any peer can come
// up. From then on Node and OtherHolder may be called.
func Open(spec *Spec, start func(*Fabric)) (*Fabric, error) {
	h, err := openHosts(spec)
	if err != nil {
		return nil, Advise(err)
	}
	return joinHosts(h, start)
}

func joinHosts(h *hosts, start func(*Fabric)) (*Fabric, error) {
	var err error
	f := newFabric(h, func(f *Fabric) { start(f); err = h.attach(f.node) })
	if err == nil {
		err = h.join()
	}
	if err != nil {
		f.Close()
		return nil, Advise(err)
	}
	return f, nil
}

func newFabric(n *hosts, start func(*Fabric)) *Fabric {
	f := &Fabric{
		Claims: n.registry,
		net:    n,
		node:   link.NewNode(link.MakeID(n.spec.Node, n.number)),
		peers:  map[link.ID]*link.Peer{},
		making: map[making]*makingPeer{},
	}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	start(f)
	n.serve(f.accepted)
	return f
}

// Node returns this process' node.
func (f *Fabric) Node() *link.Node { return f.node }

// Tunnels returns the peers that are reached by way of other nodes. There are none in a fabric of one host, and in
// a process that has met no owner of its host's links.
func (f *Fabric) Tunnels() []ring.TunnelInfo {
	if r := f.net.ring.Load(); r != nil {
		return r.Tunnels()
	}
	return nil
}

// Close takes all links down and drops all claims. It waits until all memory is
// released.
func (f *Fabric) Close() {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return
	}
	f.closed = true
	f.mu.Unlock()
	f.cancel()
	f.net.close()
	f.net.closeNode()
	f.wg.Wait()
	if f.net.leave != nil {
		f.net.leave()
	}
}

// SocketHolder returns a node of this host that accepts connections for a socket. The
// node may accept for another socket of that port, and then refuses.
func (f *Fabric) SocketHolder(port int, cookie uint64) (id link.ID, ok bool, err error) {
	process, ok, err := f.net.registry.SocketHolder(port, cookie)
	return link.MakeID(f.net.spec.Node, process), ok, err
}

// HolderOf is SocketHolder, where AnySocket has found s on the port already.
func (f *Fabric) HolderOf(s PublishedSocket, port int, cookie uint64) (id link.ID, ok bool, err error) {
	if s.MayBe(cookie) {
		return link.MakeID(f.net.spec.Node, s.Process), true, nil
	}
	return f.SocketHolder(port, cookie)
}

// Refuse counts another process that was refused.
func (f *Fabric) Refuse(why error) { f.net.refused.add(why) }

// Refused are the other processes that were refused since the fabric was opened.
func (f *Fabric) Refused() Refusals { return f.net.refused.view() }

// Host returns this host's number.
func (f *Fabric) Host() int { return f.net.spec.Node }

// Elsewhere is that of the fabric's Spec, for a dial that has failed.
func (f *Fabric) Elsewhere() string { return f.net.spec.Elsewhere(whyTime) }

// Whose returns the fabric's name, and for which processes it is, for messages.
func (f *Fabric) Whose() string { return f.net.spec.Whose() }

// OwnsLinks reports whether this process owns its host's links to other hosts.
func (f *Fabric) OwnsLinks() bool { return f.net.several() && !f.net.spec.member() }

// NodeAddr returns the address that stands for a host where addresses are those of TCP.
// In a fabric of one host it is loopback. Otherwise it is a link-local address whose
// zone is the host's name.
func (f *Fabric) NodeAddr(host int) netip.Addr {
	if !f.net.several() {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	a := [16]byte{0: 0xfe, 1: 0x80, 14: byte(host >> 8), 15: byte(host)}
	return netip.AddrFrom16(a).WithZone(nodeName(host))
}

// Holder returns the node of this host that holds a port.
func (f *Fabric) Holder(port int) (id link.ID, ok bool, err error) {
	process, ok, err := f.net.registry.Holder(port)
	return link.MakeID(f.net.spec.Node, process), ok, err
}

// OtherHolder returns another process of this host that holds a port, or 0 if there
// is none.
func (f *Fabric) OtherHolder(port int) (process int) {
	process, ok, err := f.net.registry.Holder(port)
	if err != nil || !ok || process == f.net.number {
		return 0
	}
	return process
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
	m, err := f.join(making{id, cables, fmt.Sprint(users)}, users)
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
func (f *Fabric) join(to making, users []int) (*makingPeer, error) {
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

func (f *Fabric) makeLink(to making, users []int, m *makingPeer) {
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
