package ntbshm

import (
	"errors"
	"fmt"
	"net"

	"github.com/ntbnet/ntbnet/ntb"
)

// Errors of New. A timeout wraps os.ErrDeadlineExceeded, a peer that hangs up
// ntb.ErrLinkDown.
var (
	// ErrVersion: the peer's program speaks another version of the exchange.
	ErrVersion = errors.New("ntbshm: version mismatch")
	// ErrBadPeer: what the peer sent is not acceptable.
	ErrBadPeer = errors.New("ntbshm: bad message from the peer")
)

const (
	defaultWindow = 1 << 30
	maxDoorbells  = 16
	pageSize      = 4096 // windows come in multiples of it, on every machine
)

// Options of one end. The zero value is good.
type Options struct {
	// Window is the size of the inbound window in bytes, a multiple of 4096 up
	// to 64 GiB; 0 means 1 GiB. Memory is taken only as pages are touched. The
	// two ends may differ.
	Window int
	// Doorbells is the number of doorbell bits, 1 to 16; 0 means 1. Both ends
	// must have the same number.
	Doorbells int
}

// New makes this side's end of a bridge. Both processes call it on the two ends
// of a connected Unix stream socket, the cable, on which nothing else is sent;
// it returns when both files have been exchanged. A deadline set on the cable
// limits the exchange and is cleared after it.
//
// The device owns the cable from the moment of the call, and New closes it on
// error. The device implements ntb.Reclaimer.
func New(cable *net.UnixConn, o Options) (ntb.Device, error) {
	d, err := connect(cable, o)
	if err != nil {
		return nil, err // not a nil device in an interface
	}
	return d, nil
}

// withDefaults fills in what is zero and refuses what is out of range.
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
