package fabric

import (
	"context"

	"github.com/ntbnet/ntbnet/internal/greeting"
	"github.com/ntbnet/ntbnet/internal/hostdir"
	"github.com/ntbnet/ntbnet/ntb"
)

// registry is what a process has claimed in a fabric of several hosts: its
// number, and ports of its host. It makes the cables to others.
type registry interface {
	// process returns this process' number on its host.
	process() int
	Claims
	// Holder returns the process of this host that holds a port.
	Holder(port int) (process int, ok bool, err error)
	// SocketHolder returns a process of this host that accepts connections for a socket.
	SocketHolder(port int, cookie uint64) (process int, ok bool, err error)
	// Processes returns the numbers of this host's processes.
	Processes() ([]int, error)
	// present reports whether a node runs: some process owns its links.
	present(node int) (bool, error)
	// connect makes a cable to a process of a node. Process 0 is the owner of its
	// links. The error wraps EHOSTUNREACH if there is none.
	connect(ctx context.Context, node, process int) (cable, error)
	// Cables identifies the process of this host that has a number: another one may get the
	// number later. If users are not nil, and others have the number, the error wraps
	// hostdir.ErrOtherUser.
	Cables(process int, users []int) (string, error)
	// connectTo makes a cable to a process of this host, which must be of one of the users, if
	// these are not nil. If it is not, the error wraps hostdir.ErrOtherUser.
	connectTo(ctx context.Context, process int, users []int) (cable, error)
	// accept waits for the next cable. The error wraps net.ErrClosed after stop, and a
	// *hostdir.ForbiddenError for one of a process that is not of the fabric. With another
	// error there may be a cable to close.
	accept() (cable, error)
	// stop ends accept.
	stop()
	// close drops all claims.
	close()
}

// cable joins two processes before they have a bridge.
type cable interface {
	greeting.Cable
	// bridge makes this end of a bridge. Its window has window bytes, 0 for the
	// kind's own size. It has at least doorbells doorbell bits. Both sides call it,
	// before the deadline. The bridge owns the cable from then on. On error the
	// cable is closed.
	bridge(window, doorbells int) (ntb.Device, error)
}

// HandoverTime is how long a dial waits, at most, for the next holder of a port that was handed over.
const HandoverTime = hostdir.HandoverTime

// Claims are what a process has on its host, where others find it.
type Claims interface {
	// ClaimPort claims a port of this host. Port 0 claims a free one. The error wraps
	// EADDRINUSE if another process or listener has the port.
	ClaimPort(port int) (int, error)
	// ReleasePort releases a port.
	ReleasePort(port int)
	// Handover releases a port for another process of this host, which is about to claim it.
	Handover(port int)
	// HandedOver reports whether a process of this host has handed a port over less than HandoverTime ago, so
	// that a dial waits for the next one. holder is a user who is known to have held the port, or -1; see
	// hostdir.Dir.HandedOver.
	HandedOver(port, holder int) bool
	// PublishSocket publishes that this process accepts connections for the TCP socket with
	// this cookie, which listens on port. It may be called several times for a socket, and
	// is undone as often.
	PublishSocket(port int, cookie uint64) error
	// WithdrawSocket undoes one PublishSocket.
	WithdrawSocket(port int, cookie uint64)
	// AnySocket finds one of the sockets that processes of this host have published on a port.
	AnySocket(port int) (s hostdir.Socket, ok bool, err error)
	// Watch has lost called once, when the directory of the fabric was removed or replaced, so that
	// processes that come later do not find this one. The error wraps ESTALE. Watch is called by
	// Open's start. lost must not close the Fabric.
	Watch(lost func(error))
	// Lost returns the error with which Watch's function was called, or is called now: where the system
	// gives no notice, Lost looks.
	Lost() error
}
