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
	// linkTimeout limits making a link, both ends of which are on this host.
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
	accepted func(ntb.Device) // set by serve
}

func newMemNetwork(window int, wrap func(a, b ntb.Device) (ntb.Device, ntb.Device)) *memNetwork {
	return &memNetwork{window: window, wrap: wrap, ports: map[int]bool{}}
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

func (n *memNetwork) connect(context.Context, int) (ntb.Device, error) {
	a, b := ntbmem.Pair(n.window)
	if n.wrap != nil {
		a, b = n.wrap(a, b)
	}
	n.accepted(b)
	return a, nil
}
