package fabric

import (
	"context"
	"io"
	"time"

	"github.com/ntbnet/ntbnet/internal/hostdir"
	"github.com/ntbnet/ntbnet/ntb"
)

// station is a process' place in a fabric of several hosts: the claim of its
// number, its host's ports, and the cables to others.
type station interface {
	// process returns this process' number on its host.
	process() int
	claimPort(port int) (int, error)
	releasePort(port int)
	// handover releases a port for another process, and handedOver reports that one has done so
	// just now, for which a dial waits. holder is a user who has held the port, or -1.
	handover(port int)
	handedOver(port, holder int) bool
	// holder returns the process of this host that holds a port.
	holder(port int) (process int, ok bool, err error)
	sockets
	// processes returns the numbers of this host's processes.
	processes() ([]int, error)
	// present reports whether a node runs: some process owns its links.
	present(node int) (bool, error)
	// connect makes a cable to a process of a node. Process 0 is the owner of its
	// links. The error wraps EHOSTUNREACH if there is none.
	connect(ctx context.Context, node, process int) (cable, error)
	// cables identifies the process of this host that has a number: another one may get the
	// number later. If users are not nil, and others have the number, the error wraps
	// hostdir.ErrOtherUser.
	cables(process int, users []int) (string, error)
	// connectTo makes a cable to a process of this host, which must be of one of the users, if
	// these are not nil. If it is not, the error wraps hostdir.ErrOtherUser.
	connectTo(ctx context.Context, process int, users []int) (cable, error)
	// accept waits for the next cable. The error wraps net.ErrClosed after stop, and a
	// *hostdir.ForbiddenError for one of a process that is not of the fabric. With another
	// error there may be a cable to close.
	accept() (cable, error)
	// watch has lost called once, when other processes no longer find this one, since the
	// directory was removed or replaced. lost must not close the station.
	watch(lost func(error))
	// lost returns why others no longer find this process, if that is known, or nil.
	lost() error
	// stop ends accept.
	stop()
	// close drops all claims.
	close()
}

// cable joins two processes before they have a bridge.
type cable interface {
	io.ReadWriteCloser
	SetDeadline(time.Time) error
	// peer returns the user of the process at the other end.
	peer() (hostdir.Peer, error)
	// takeFiles lets the other end send files. It is called before this end's part of a greeting, unless
	// both then hang up.
	takeFiles() error
	// bridge makes this end of a bridge. Its window has window bytes, 0 for the
	// kind's own size. It has at least doorbells doorbell bits. Both sides call it,
	// before the deadline. The bridge owns the cable from then on. On error the
	// cable is closed.
	bridge(window, doorbells int) (ntb.Device, error)
}

// sockets is how the processes of a host publish for which TCP sockets they accept
// connections.
type sockets interface {
	publishSocket(port int, cookie uint64) error
	withdrawSocket(port int, cookie uint64)
	socketHolder(port int, cookie uint64) (process int, ok bool, err error)
	anySocket(port int) (s hostdir.Socket, ok bool, err error)
}
