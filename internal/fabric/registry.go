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
	// These are hostdir.Dir's, too.
	Holder(port int) (process int, ok bool, err error)
	SocketHolder(port int, cookie uint64) (process int, ok bool, err error)
	Processes() ([]int, error)
	Cables(process int, users []int) (string, error)
	// present reports whether a node runs: some process owns its links.
	present(node int) (bool, error)
	// connect makes a cable to a process of a node. Process 0 is the owner of its
	// links. The error wraps EHOSTUNREACH if there is none.
	connect(ctx context.Context, node, process int) (cable, error)
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

// Claims are what a process has on its host, where others find it: methods of hostdir.Dir. Watch is called by Open's
// start, and lost must not close the Fabric.
type Claims interface {
	ClaimPort(port int) (int, error)
	ReleasePort(port int)
	Handover(port int)
	HandedOver(port, holder int) bool
	PublishSocket(port int, cookie uint64) error
	WithdrawSocket(port int, cookie uint64)
	AnySocket(port int) (s hostdir.Socket, ok bool, err error)
	Watch(lost func(error))
	Lost() error
}
