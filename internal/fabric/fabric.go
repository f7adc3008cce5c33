package fabric

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ntbnet/ntbnet/internal/hostdir"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/internal/status"
	"github.com/ntbnet/ntbnet/ring"
)

// ErrClosed reports that the fabric is closed.
var ErrClosed = errors.New("fabric: closed")

// ErrOtherUser reports that a process is not of a user that was asked for.
var ErrOtherUser = hostdir.ErrOtherUser

// Fabric is this process' membership in a fabric: the processes and ports of this host, and this host's links to the
// other hosts. A fabric of one host has one node and no such links.
type Fabric struct {
	Claims                             // those of registry; immutable
	spec     *spec.Spec                // immutable; of one host, Node and Nodes are 1
	registry registry                  // immutable
	number   int                       // number of this process on its host; immutable
	node     *link.Node                // set before serve
	ring     atomic.Pointer[ring.Node] // the node in a fabric of several hosts, once the number of these is known
	ctx      context.Context           // Close ends it
	cancel   context.CancelFunc
	wg       sync.WaitGroup // all goroutines
	begun    time.Time      // immutable
	// plan is the fabric as the owner of this host's links defines it. For the
	// owner it is its own spec. For a member it is the member's spec, completed
	// once it has met the owner. After that it does not change.
	plan     atomic.Pointer[spec.Spec]
	refused  refusals
	foreign  foreignLinks
	takeOver func(*spec.Spec) (leave func(), err error) // OnTakeover's; set before serve
	leave    func()                                     // what takeOver returned; of awaitTakeover, and of Close behind it
	// connections are those of this process; nil if nobody knows; set before serve.
	connections func(counters bool) []status.Connection
	describe    func(*status.Process) // adds what else their package says; likewise

	keeper
}

// PublishedSocket is a TCP socket for which a process of this host accepts connections.
type PublishedSocket = hostdir.Socket

// Node returns this process' node.
func (f *Fabric) Node() *link.Node { return f.node }

// Tunnels returns the peers that are reached by way of other nodes. There are none in a fabric of one host, and in
// a process that has met no owner of its host's links.
func (f *Fabric) Tunnels() []ring.TunnelInfo {
	if r := f.ring.Load(); r != nil {
		return r.Tunnels()
	}
	return nil
}

// Close takes all links down and drops all claims. It waits until all memory is
// released.
func (f *Fabric) Close() {
	f.mu.Lock()
	was := f.closed
	f.closed = true
	f.mu.Unlock()
	if was {
		return
	}
	windowed.CompareAndDelete(windowKey(f.spec), f)
	f.cancel()
	f.registry.stop()
	f.wg.Wait()
	f.registry.close()
	// Until now what the node has sent was on its way over the wires.
	if r := f.ring.Load(); r != nil {
		r.Close()
	} else {
		f.node.Close()
	}
	f.detachWires()
	if f.leave != nil {
		f.leave()
	}
}

// SocketHolder returns a node of this host that accepts connections for a socket. The
// node may accept for another socket of that port, and then refuses.
func (f *Fabric) SocketHolder(port int, cookie uint64) (id link.ID, ok bool, err error) {
	process, ok, err := f.registry.SocketHolder(port, cookie)
	return link.MakeID(f.spec.Node, process), ok, err
}

// HolderOf is SocketHolder, where AnySocket has found s on the port already.
func (f *Fabric) HolderOf(s PublishedSocket, port int, cookie uint64) (id link.ID, ok bool, err error) {
	if s.MayBe(cookie) {
		return link.MakeID(f.spec.Node, s.Process), true, nil
	}
	return f.SocketHolder(port, cookie)
}

// Refuse counts another process that was refused.
func (f *Fabric) Refuse(why error) { f.refused.add(why) }

// Refused are the other processes that were refused since the fabric was opened.
func (f *Fabric) Refused() Refusals { return f.refused.view() }

// Host returns this host's number.
func (f *Fabric) Host() int { return f.spec.Node }

// Elsewhere is that of the fabric's Spec, for a dial that has failed.
func (f *Fabric) Elsewhere() string { return f.spec.Elsewhere(whyTime) }

// Whose returns the fabric's name, and for which processes it is, for messages.
func (f *Fabric) Whose() string { return f.spec.Whose() }

// OwnsLinks reports whether this process owns its host's links to other hosts.
func (f *Fabric) OwnsLinks() bool { return f.several() && !f.spec.IsMember() }

// Holder returns the node of this host that holds a port.
func (f *Fabric) Holder(port int) (id link.ID, ok bool, err error) {
	process, ok, err := f.registry.Holder(port)
	return link.MakeID(f.spec.Node, process), ok, err
}

// OtherHolder returns another process of this host that holds a port, or 0 if there
// is none.
func (f *Fabric) OtherHolder(port int) (process int) {
	process, ok, err := f.registry.Holder(port)
	if err != nil || !ok || process == f.number {
		return 0
	}
	return process
}
