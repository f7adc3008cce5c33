package fabric

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
)

// memHub joins the nodes of one process, for tests.
type memHub struct {
	wrap func(a, b ntb.Device) (ntb.Device, ntb.Device) // of each bridge; immutable, may be nil

	mu       sync.Mutex
	stations map[int]*memStation // guarded by mu
}

// memHubs are those that have names.
var memHubs = struct {
	mu  sync.Mutex
	all map[string]*memHub // guarded by mu
}{all: map[string]*memHub{}}

// namedHub is the hub of a name. One is kept for ever: it is small, and empty
// when its nodes are gone.
func namedHub(name string) *memHub {
	memHubs.mu.Lock()
	defer memHubs.mu.Unlock()
	h := memHubs.all[name]
	if h == nil {
		h = newMemHub(nil)
		memHubs.all[name] = h
	}
	return h
}

func newMemHub(wrap func(a, b ntb.Device) (ntb.Device, ntb.Device)) *memHub {
	return &memHub{wrap: wrap, stations: map[int]*memStation{}}
}

// memStation is a node of a hub.
type memStation struct {
	*memNetwork // its ports
	hub         *memHub
	node        int
	queue       chan *memCable // sent to by who connects
	stopped     chan struct{}
	once        sync.Once
}

func (h *memHub) open(node int) (*memStation, error) {
	s := &memStation{
		memNetwork: newMemNetwork(0, nil),
		hub:        h, node: node, queue: make(chan *memCable), stopped: make(chan struct{}),
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stations[node] != nil {
		return nil, fmt.Errorf("fabric: claim the bridges of this host: %w", syscall.EADDRINUSE)
	}
	h.stations[node] = s
	return s, nil
}

func (h *memHub) at(node int) *memStation {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stations[node]
}

func (s *memStation) present(node int) (bool, error) { return s.hub.at(node) != nil, nil }

func (s *memStation) connect(ctx context.Context, node, process int) (cable, error) {
	return s.hub.connect(ctx, node, process)
}

func (h *memHub) connect(ctx context.Context, node, process int) (cable, error) {
	to := h.at(node)
	if to == nil || process != 0 && process != to.process() {
		return nil, fmt.Errorf("fabric: node %d is not there: %w", node, syscall.EHOSTUNREACH)
	}
	a, b := net.Pipe()
	bridge := &memBridge{wrap: h.wrap}
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

func (s *memStation) accept() (cable, error) {
	select {
	case c := <-s.queue:
		return c, nil
	case <-s.stopped:
		return nil, net.ErrClosed
	}
}

func (s *memStation) stop() { s.once.Do(func() { close(s.stopped) }) }

func (s *memStation) close() {
	s.stop()
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	if s.hub.stations[s.node] == s {
		delete(s.hub.stations, s.node)
	}
}

// memBridge is the bridge that a cable becomes.
type memBridge struct {
	wrap func(a, b ntb.Device) (ntb.Device, ntb.Device)
	once sync.Once
	ends [2]ntb.Device // constant after once
}

// memCable is one end of a cable within a process.
type memCable struct {
	net.Conn
	made *memBridge
	end  int // 0 or 1
}

func (c *memCable) bridge(window, _ int) (ntb.Device, error) {
	if window == 0 {
		window = defaultMemWindow
	}
	c.made.once.Do(func() {
		a, b := ntbmem.Pair(window)
		if c.made.wrap != nil {
			a, b = c.made.wrap(a, b)
		}
		c.made.ends = [2]ntb.Device{a, b}
	})
	dev := c.made.ends[c.end]
	// Both sides say that they are here: the other may have hung up instead.
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
	if err != nil {
		dev.Close()
		return nil, fmt.Errorf("fabric: the other side of the cable is gone: %w", err)
	}
	return dev, nil
}

func (c *memCable) SetDeadline(t time.Time) error { return c.Conn.SetDeadline(t) }
