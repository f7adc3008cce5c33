package ntbshm

import (
	"errors"
	"fmt"
	"net"

	"github.com/ntbnet/ntbnet/ntb"
)

// Errors of New. A timeout wraps os.ErrDeadlineExceeded. The end of a peer that
// hangs up wraps ntb.ErrLinkDown.
var (
	// ErrVersion reports that the peer's program uses another version of the
	// exchange.
	ErrVersion = errors.New("ntbshm: version mismatch")
	// ErrBadPeer reports that what the peer sent is not acceptable.
	ErrBadPeer = errors.New("ntbshm: bad message from the peer")
)

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
// a connected Unix stream socket, the cable. Nothing else may be sent on it. New
// returns when both sides' files have been exchanged. A deadline that is set on the
// cable limits the exchange. New clears it afterwards.
//
// The device owns the cable from the moment of the call. On error New closes it.
// The device can reclaim.
func New(cable *net.UnixConn, o Options) (ntb.Device, error) {
	d, err := connect(cable, o)
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
