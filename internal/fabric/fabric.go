package fabric

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"

	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ring"
)

// EnvFabric is the environment variable that names the fabric of a process
// which does not choose one.
const EnvFabric = "SDP_FABRIC"

// localHost is the number of this host in a fabric of one host.
const localHost = 1

// ErrClosed: the fabric is closed.
var ErrClosed = errors.New("fabric: closed")

// Fabric is this process' membership in a fabric.
type Fabric struct {
	node *ring.Node // immutable
	net  network    // immutable

	mu     sync.Mutex
	peers  map[ring.ID]*ring.Peer  // the links that dials use; guarded by mu
	making map[ring.ID]*makingPeer // guarded by mu
	closed bool                    // guarded by mu
	wg     sync.WaitGroup          // links in bring-up
	ctx    context.Context         // ends with Close
	cancel context.CancelFunc
}

// makingPeer is a link that is being made, for several who want it.
type makingPeer struct {
	done chan struct{}
	peer *ring.Peer // constant after done
	err  error
}

// network is how the processes of a fabric find each other.
type network interface {
	// process is this process' number.
	process() int
	claimPort(port int) (int, error)
	releasePort(port int)
	// holder finds the process that holds a port.
	holder(port int) (process int, ok bool, err error)
	// connect makes a bridge to a process.
	connect(ctx context.Context, process int) (ntb.Device, error)
	// serve calls accepted for each bridge that another process makes, until
	// close. accepted may be called from several goroutines.
	serve(accepted func(ntb.Device))
	// close drops all claims and ends serve, for which it waits.
	close()
}

// Open joins the fabric that spec names. start is called with the node before any
// peer can come up.
func Open(spec *Spec, start func(*ring.Node)) (*Fabric, error) {
	if spec.Kind == "mem" {
		window := spec.Window
		if window == 0 {
			window = defaultMemWindow
		}
		wrap := func(a, b ntb.Device) (ntb.Device, ntb.Device) { return spec.wrap(a), spec.wrap(b) }
		return newFabric(newMemNetwork(window, wrap), start), nil
	}
	n, err := openShm(spec)
	if err != nil {
		return nil, err
	}
	return newFabric(n, start), nil
}

// OpenMem is a fabric within this process with windows of the given size in
// bytes, whose bridges wrap may wrap.
func OpenMem(window int, wrap func(a, b ntb.Device) (ntb.Device, ntb.Device), start func(*ring.Node)) *Fabric {
	return newFabric(newMemNetwork(window, wrap), start)
}

func newFabric(n network, start func(*ring.Node)) *Fabric {
	f := &Fabric{
		net:    n,
		node:   ring.NewNode(ring.MakeID(localHost, n.process())),
		peers:  map[ring.ID]*ring.Peer{},
		making: map[ring.ID]*makingPeer{},
	}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	start(f.node)
	n.serve(f.accepted)
	return f
}

// Node is this process' node.
func (f *Fabric) Node() *ring.Node { return f.node }

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
	f.node.Close()
	f.wg.Wait()
}

// ClaimPort claims a port of this host; 0 claims a free one. The error wraps
// EADDRINUSE if another process or listener has it.
func (f *Fabric) ClaimPort(port int) (int, error) { return f.net.claimPort(port) }

// ReleasePort gives a port back.
func (f *Fabric) ReleasePort(port int) { f.net.releasePort(port) }

// IsLocal tells, without asking a name server, that host means this host: an
// empty name, localhost, this host's name or number, a loopback address or
// another address of this machine.
func (f *Fabric) IsLocal(host string) bool {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if host == "" || host == "localhost" || host == fmt.Sprintf("node%d", localHost) {
		return true
	}
	if name, err := os.Hostname(); err == nil && strings.EqualFold(host, name) {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && isLocalIP(ip)
}

func isLocalIP(ip net.IP) bool {
	if ip.IsLoopback() || ip.IsUnspecified() {
		return true
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.Equal(ip) {
			return true
		}
	}
	return false
}

// Holder finds the node of this host that holds a port.
func (f *Fabric) Holder(port int) (id ring.ID, ok bool, err error) {
	process, ok, err := f.net.holder(port)
	return ring.MakeID(localHost, process), ok, err
}

// Peer is the link to a node, made if there is none.
func (f *Fabric) Peer(ctx context.Context, id ring.ID) (*ring.Peer, error) {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil, ErrClosed
	}
	if p := f.peers[id]; p != nil && p.Up() {
		f.mu.Unlock()
		return p, nil
	}
	m := f.making[id]
	if m == nil {
		m = &makingPeer{done: make(chan struct{})}
		f.making[id] = m
		f.wg.Add(1)
		// Not bound to ctx: others may wait for the same link.
		go f.makeLink(id, m)
	}
	f.mu.Unlock()
	select {
	case <-m.done:
		return m.peer, m.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (f *Fabric) makeLink(id ring.ID, m *makingPeer) {
	defer f.wg.Done()
	ctx, cancel := context.WithTimeout(f.ctx, linkTimeout)
	defer cancel()
	dev, err := f.net.connect(ctx, id.Process())
	if err == nil {
		m.peer, err = f.node.Up(ctx, dev)
	}
	if err == nil && m.peer.ID() != id {
		err = fmt.Errorf("fabric: %v answered for %v: %w", m.peer.ID(), id, ring.ErrProtocol)
		m.peer.Fail(err)
	}
	m.err = err
	f.mu.Lock()
	delete(f.making, id)
	if err == nil {
		f.peers[id] = m.peer
	}
	f.mu.Unlock()
	close(m.done)
}

// accepted brings up a link that another process makes, and uses it for our own
// dials as well if there is none yet.
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
		if err != nil {
			return // whoever made it gets the error
		}
		f.mu.Lock()
		if old := f.peers[p.ID()]; old == nil || !old.Up() {
			f.peers[p.ID()] = p
		}
		f.mu.Unlock()
	}()
}
