package fabric

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
)

const (
	// linkTimeout limits the time to make a link whose ends are both on this host.
	linkTimeout = 10 * time.Second

	defaultMemWindow = 16 << 20
	defaultShmWindow = 1 << 30 // address space: memory is taken as it is touched
)

// memNetwork is a network of one process, whose links lead back to itself.
type memNetwork struct {
	window int
	wrap   func(a, b ntb.Device) (ntb.Device, ntb.Device) // may be nil

	mu       lock.Mutex[lock.Hub]
	ports    map[int]bool     // guarded by mu
	sockets  memSockets       // guarded by mu
	accepted func(ntb.Device) // set by serve
}

func newMemNetwork(window int, wrap func(a, b ntb.Device) (ntb.Device, ntb.Device)) *memNetwork {
	return &memNetwork{window: window, wrap: wrap, ports: map[int]bool{}, sockets: memSockets{}}
}

func (n *memNetwork) host() int                       { return localHost }
func (n *memNetwork) process() int                    { return 1 }
func (n *memNetwork) serve(accepted func(ntb.Device)) { n.accepted = accepted }
func (n *memNetwork) close()                          {}

func (n *memNetwork) claimPort(port int) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if port == 0 {
		for port = firstFree; n.ports[port]; port++ {
		}
	}
	if n.ports[port] || port > maxPort {
		return 0, fmt.Errorf("port %d: %w", port, syscall.EADDRINUSE)
	}
	n.ports[port] = true
	return port, nil
}

func (n *memNetwork) releasePort(port int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.ports, port)
}

func (n *memNetwork) holder(port int) (int, bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.process(), n.ports[port], nil
}

func (n *memNetwork) publishSocket(port int, cookie uint64) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sockets.publish(memSocket{port, cookie, n.process()})
	return nil
}

func (n *memNetwork) withdrawSocket(port int, cookie uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sockets.withdraw(memSocket{port, cookie, n.process()})
}

func (n *memNetwork) socketHolder(port int, cookie uint64) (int, bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	process, ok := n.sockets.holder(port, cookie)
	return process, ok, nil
}

func (n *memNetwork) hasSockets(port int) (bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.sockets.on(port), nil
}

func (n *memNetwork) connect(context.Context, int) (ntb.Device, error) {
	a, b := ntbmem.Pair(n.window)
	if n.wrap != nil {
		a, b = n.wrap(a, b)
	}
	n.accepted(b)
	return a, nil
}

// memSockets are the published sockets within a process, and how often each is
// published.
type memSockets map[memSocket]int

type memSocket struct {
	port    int
	cookie  uint64
	process int
}

func (m memSockets) publish(s memSocket) { m[s]++ }

func (m memSockets) withdraw(s memSocket) {
	if m[s]--; m[s] <= 0 {
		delete(m, s)
	}
}

func (m memSockets) holder(port int, cookie uint64) (process int, ok bool) {
	for s := range m {
		if s.port == port && s.cookie == cookie {
			return s.process, true
		}
	}
	return 0, false
}

func (m memSockets) on(port int) bool {
	for s := range m {
		if s.port == port {
			return true
		}
	}
	return false
}
