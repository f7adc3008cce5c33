package ntbshm

import (
	"errors"
	"fmt"
	"net"

	"github.com/ntbnet/ntbnet/internal/shm/unixsock"
	"github.com/ntbnet/ntbnet/ntb"
)

// ErrBadPeer reports that what the peer sent is not acceptable. It is an error of New. Others are a *HalfError,
// ntb.ErrVersion, where the peer's program uses another version of the exchange, and
// ntb.ErrLinkDown, where the peer hangs up. A timeout wraps os.ErrDeadlineExceeded.
var ErrBadPeer = errors.New("ntbshm: bad message from the peer")

// HalfError reports that one side could not make its half of the bridge, as for want of descriptors or
// memory. Both sides' New return it.
type HalfError struct {
	Peer bool  // whether it is the peer's half
	Err  error // why; of the peer's half a syscall.Errno, or no more than that it is unknown
}

// Error implements error.
func (e *HalfError) Error() string {
	if e.Peer {
		return "ntbshm: the other process could not make its half of the link: " + e.Err.Error()
	}
	return e.Err.Error()
}

// Unwrap returns the reason.
func (e *HalfError) Unwrap() error { return e.Err }

const (
	defaultWindow = 1 << 30
	maxDoorbells  = 16
	pageSize      = 4096 // windows are multiples of it, on every machine
)

// Options configures one end. The zero value is usable.
type Options struct {
	// Window is the size of the inbound window in bytes, a multiple of 4096 up to
	// 64 GiB. 0 means 1 GiB. Memory is taken only as pages are touched. The two
	// ends may differ.
	Window int
	// Doorbells is the number of doorbell bits, 1 to 16. 0 means 1. Both ends must
	// have the same number.
	Doorbells int
}

// New makes this side's end of a bridge. Both processes call it on the two ends of
// a connected Unix stream socket, the cable, which is a *net.UnixConn here. Nothing else may be sent on it. New
// returns when both sides' files have been exchanged. A deadline that is set on the
// cable limits the exchange. New clears it afterwards.
//
// The device owns the cable from the moment of the call. On error New closes it.
// The device can reclaim.
func New(cable net.Conn, o Options) (ntb.Device, error) {
	c, err := unixsock.Own(cable)
	if err != nil {
		return nil, fmt.Errorf("ntbshm: %w", errors.Join(err, cable.Close()))
	}
	d, err := connect(c, o)
	if err != nil {
		return nil, err // not a nil *device in an interface
	}
	return d, nil
}

// withDefaults replaces zero fields by their defaults, and refuses values that are
// out of range.
func (o Options) withDefaults() (Options, error) {
	if o.Window == 0 {
		o.Window = defaultWindow
	}
	if o.Doorbells == 0 {
		o.Doorbells = 1
	}
	if o.Window < pageSize || int64(o.Window) > maxWindow || o.Window%pageSize != 0 {
		return o, fmt.Errorf("ntbshm: window of %d bytes, want a multiple of 4096 up to 64 GiB", o.Window)
	}
	if o.Doorbells < 1 || o.Doorbells > maxDoorbells {
		return o, fmt.Errorf("ntbshm: %d doorbells, want 1 to %d", o.Doorbells, maxDoorbells)
	}
	return o, nil
}
