package fabric

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"

	"github.com/ntbnet/ntbnet/internal/hostdir"
	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
)

// MemHosts joins the nodes of a fabric within this process. They may come and go one by one.
type MemHosts struct {
	wrap wrapper // for each bridge; immutable, may be nil

	mu    lock.Mutex[lock.Hub]
	hosts map[int]*memHost // by node; guarded by mu
}

// wrapper wraps the two ends of a bridge: a is the end of node from, and b that of
// node to.
type wrapper func(from, to int, a, b ntb.Device) (ntb.Device, ntb.Device)

// memHost is what the registries of a node share.
type memHost struct {
	claims     hostdir.Memory
	registries map[int]*memRegistry // guarded by the hub's mu
	owner      *memRegistry         // likewise; nil if there is none
}

// memHubs are the hubs that have names.
var memHubs = struct {
	mu  lock.Mutex[lock.Hub]
	all map[string]*MemHosts // guarded by mu
}{all: map[string]*MemHosts{}}

// namedHub returns the hub of a name. It is kept for ever. It is small, and empty
// when its nodes are gone.
func namedHub(name string) *MemHosts {
	memHubs.mu.Lock()
	defer memHubs.mu.Unlock()
	h := memHubs.all[name]
	if h == nil {
		h = NewMemHosts(nil)
		memHubs.all[name] = h
	}
	return h
}

// NewMemHosts returns a MemHosts without nodes. wrap, if not nil, may wrap each bridge.
func NewMemHosts(wrap wrapper) *MemHosts {
	return &MemHosts{wrap: wrap, hosts: map[int]*memHost{}}
}

// memRegistry is a process of a node of a hub.
type memRegistry struct {
	*hostdir.Claims
	hub     *MemHosts
	host    *memHost
	node    int
	number  int
	queue   chan *memCable // capacity for cables that wait; a process that connects sends
	stopped chan struct{}
	once    sync.Once
}

// Open opens the node that spec names, for tests. The spec's name is ignored.
func (h *MemHosts) Open(spec *spec.Spec, start func(*Fabric)) (*Fabric, error) {
	n, err := openMemHosts(spec, h)
	if err != nil {
		return nil, err
	}
	return n.open(start)
}

// Kill drops a node's claims, and its processes make and accept no cables any more, as
// if they had died, for tests. Others may be opened in their place at once. Existing bridges stay.
// The caller that opened the node still closes it.
func (h *MemHosts) Kill(node int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if host := h.hosts[node]; host != nil {
		delete(h.hosts, node) // the old registries keep their claims in the old host
		for _, s := range host.registries {
			s.stop()
		}
	}
}

func (h *MemHosts) open(node int, owner bool) (*memRegistry, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	host := h.hosts[node]
	if host == nil {
		host = &memHost{registries: map[int]*memRegistry{}}
		h.hosts[node] = host
	}
	c, number, err := host.claims.Join(owner)
	if err != nil {
		return nil, err
	}
	s := &memRegistry{Claims: c, hub: h, host: host, node: node, number: number, queue: make(chan *memCable), stopped: make(chan struct{})}
	host.registries[number] = s
	if owner {
		host.owner = s
	}
	return s, nil
}

// at returns a process of a node, or nil if there is none. Process 0 is the owner
// of its links.
func (h *MemHosts) at(node, process int) *memRegistry {
	h.mu.Lock()
	defer h.mu.Unlock()
	host := h.hosts[node]
	switch {
	case host == nil:
		return nil
	case process == 0:
		return host.owner
	}
	return host.registries[process]
}

func (s *memRegistry) process() int { return s.number }

// Handover releases the port. No other process can have it.
func (s *memRegistry) Handover(port int) { s.ReleasePort(port) }

func (s *memRegistry) HandedOver(int, int) bool { return false }

// Watch does nothing: the registry of a process that runs is always found.
func (s *memRegistry) Watch(func(error)) {}

func (s *memRegistry) Lost() error { return nil }

func (s *memRegistry) present(node int) (bool, error) { return s.hub.at(node, 0) != nil, nil }

func (s *memRegistry) connect(ctx context.Context, node, process int) (cable, error) {
	if s.isStopped() {
		return nil, fmt.Errorf("fabric: node %d is ending: %w", s.node, net.ErrClosed)
	}
	return s.hub.connectFrom(ctx, s, node, process)
}

// Cables returns nothing: all processes are of this user, and end with their cables.
func (s *memRegistry) Cables(int, []int) (string, error) { return "", nil }

func (s *memRegistry) connectTo(ctx context.Context, process int, _ []int) (cable, error) {
	return s.connect(ctx, s.node, process)
}

// connect is connectFrom for a caller that is no registry.
func (h *MemHosts) connect(ctx context.Context, node, process int) (cable, error) {
	return h.connectFrom(ctx, &memRegistry{node: node, stopped: make(chan struct{})}, node, process)
}

func (h *MemHosts) connectFrom(ctx context.Context, from *memRegistry, node, process int) (cable, error) {
	to := h.at(node, process)
	if to == nil {
		return nil, fmt.Errorf("fabric: node %d is not there: %w", node, syscall.EHOSTUNREACH)
	}
	a, b := net.Pipe()
	bridge := &memBridge{wrap: h.wrap, from: from, to: to}
	near, far := &memCable{Conn: a, made: bridge}, &memCable{Conn: b, made: bridge, end: 1}
	select {
	case to.queue <- far:
		return near, nil
	case <-to.stopped:
		near.Close()
		return nil, fmt.Errorf("fabric: node %d is ending: %w", node, syscall.ECONNREFUSED)
	case <-ctx.Done():
		near.Close()
		return nil, ctx.Err()
	}
}

func (s *memRegistry) accept() (cable, error) {
	select {
	case c := <-s.queue:
		return c, nil
	case <-s.stopped:
		return nil, net.ErrClosed
	}
}

func (s *memRegistry) stop() { s.once.Do(func() { close(s.stopped) }) }

func (s *memRegistry) isStopped() bool {
	select {
	case <-s.stopped:
		return true
	default:
		return false
	}
}

func (s *memRegistry) close() {
	s.stop()
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	delete(s.host.registries, s.number)
	if s.host.owner == s {
		s.host.owner = nil
	}
	_ = s.Close()
}

// memBridge is the bridge that a cable becomes.
type memBridge struct {
	wrap     wrapper      // immutable, may be nil
	from, to *memRegistry // of ends 0 and 1; immutable
	once     sync.Once
	ends     [2]ntb.Device // constant after once
}

// memCable is one end of a cable within a process.
type memCable struct {
	net.Conn
	made *memBridge
	end  int // 0 or 1
}

func (c *memCable) Peer() (hostdir.Peer, error) { return hostdir.Self(), nil }

func (c *memCable) TakeFiles() error { return nil }

func (c *memCable) bridge(window, _ int) (ntb.Device, error) {
	if window == 0 {
		window = defaultMemWindow
	}
	c.made.once.Do(func() {
		a, b := ntbmem.Pair(window)
		if c.made.wrap != nil {
			a, b = c.made.wrap(c.made.from.node, c.made.to.node, a, b)
		}
		c.made.ends = [2]ntb.Device{a, b}
	})
	dev := c.made.ends[c.end]
	// Each side reports that it is here, since the other may have hung up instead.
	said := make(chan error, 1)
	go func() {
		_, err := c.Write([]byte{0})
		said <- err
	}()
	var b [1]byte
	_, heard := c.Read(b[:])
	if heard != nil {
		c.Close()
	}
	err := errors.Join(heard, <-said)
	c.Close()
	if c.made.from.isStopped() || c.made.to.isStopped() {
		err = errors.Join(err, net.ErrClosed) // the process may have been killed while the bridge was made
	}
	if err != nil {
		dev.Close()
		return nil, fmt.Errorf("fabric: the other side of the cable is gone: %w", err)
	}
	return dev, nil
}
