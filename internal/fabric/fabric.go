package fabric

import (
	"errors"

	"github.com/ntbnet/ntbnet/internal/hostdir"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/spec"
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
}

// PublishedSocket is a TCP socket for which a process of this host accepts connections.
type PublishedSocket = hostdir.Socket

// Open joins the fabric that spec names. It calls start before any peer can come
// up. From then on Node and OtherHolder may be called.
func Open(s *spec.Spec, start func(*Fabric)) (*Fabric, error) {
	h, err := openHosts(s)
	if err != nil {
		return nil, spec.Advise(err)
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
		return nil, spec.Advise(err)
	}
	return f, nil
}

func newFabric(n *hosts, start func(*Fabric)) *Fabric {
	f := &Fabric{
		Claims: n.registry,
		net:    n,
		node:   link.NewNode(link.MakeID(n.spec.Node, n.number)),
	}
	start(f)
	n.wg.Go(n.serve)
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
	if !f.net.end() {
		return
	}
	f.net.close()
	f.net.closeNode()
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
func (f *Fabric) OwnsLinks() bool { return f.net.several() && !f.net.spec.IsMember() }

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
