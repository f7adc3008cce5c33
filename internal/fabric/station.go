package fabric

import (
	"context"
	"io"
	"time"

	"github.com/ntbnet/ntbnet/ntb"
)

// station is a process' place in a fabric of several hosts: the claim of its
// number, its host's ports, and the cables to others.
type station interface {
	// process is this process' number on its host.
	process() int
	claimPort(port int) (int, error)
	releasePort(port int)
	// holder finds the process of this host that holds a port.
	holder(port int) (process int, ok bool, err error)
	sockets
	// processes are the numbers of this host's processes.
	processes() ([]int, error)
	// present tells if a node runs: some process owns its links.
	present(node int) (bool, error)
	// connect makes a cable to a process of a node; 0 is the one that owns its
	// links. The error wraps EHOSTUNREACH if there is none.
	connect(ctx context.Context, node, process int) (cable, error)
	// accept waits for the next cable. The error wraps net.ErrClosed after stop.
	accept() (cable, error)
	// stop ends accept.
	stop()
	// close drops all claims.
	close()
}

// cable joins two processes before they have a bridge.
type cable interface {
	io.ReadWriteCloser
	SetDeadline(time.Time) error
	// bridge makes this end of a bridge with a window of that many bytes, 0 for
	// the kind's own size, and with so many doorbell bits at least. Both sides
	// call it, by the deadline. The cable belongs to the bridge then, or is
	// closed on error.
	bridge(window, doorbells int) (ntb.Device, error)
}
