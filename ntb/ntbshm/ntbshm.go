package ntbshm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

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

// Attach returns this side's end of a bridge whose sessions each have a cable and memory of
// their own. connect makes a cable, or accepts one, and returns ctx's error when ctx ends. A
// peer that hangs up before the exchange is over has given up: Open then asks for another
// cable.
func Attach(connect func(ctx context.Context) (net.Conn, error), o Options) ntb.Attachment {
	return &attachment{connect: connect, options: o, opening: make(chan struct{}, 1), closed: make(chan struct{})}
}

type attachment struct {
	connect func(ctx context.Context) (net.Conn, error) // immutable
	options Options                                     // immutable
	opening chan struct{}                               // capacity 1: Open is under way
	closed  chan struct{}                               // closed by Close
	once    sync.Once                                   // for Close
	current ntb.Device                                  // of the session; guarded by opening
}

// Open implements ntb.Attachment.
func (a *attachment) Open(ctx context.Context) (ntb.Device, error) {
	select {
	case a.opening <- struct{}{}:
		defer func() { <-a.opening }()
	case <-a.closed:
		return nil, ntb.ErrClosed
	case <-ctx.Done():
		return nil, fmt.Errorf("ntbshm: another call opens a session: %w", ctx.Err())
	}
	select {
	case <-a.closed:
		return nil, ntb.ErrClosed
	default:
	}
	a.end()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer onClose(a.closed, func() { cancel(ntb.ErrClosed) })()
	for {
		dev, err := a.try(ctx)
		switch {
		case err == nil:
			a.current = dev
			return dev, nil
		case ctx.Err() != nil:
			return nil, fmt.Errorf("ntbshm: the other side opens no session: %w", context.Cause(ctx))
		case !errors.Is(err, ntb.ErrLinkDown):
			return nil, err
		}
	}
}

// try makes a device of the next cable.
func (a *attachment) try(ctx context.Context) (ntb.Device, error) {
	cable, err := a.connect(ctx)
	if err != nil {
		return nil, err
	}
	// The cable itself is the device's.
	release := context.AfterFunc(ctx, func() { _ = cable.SetDeadline(time.Unix(1, 0)) })
	dev, err := New(cable, a.options)
	if !release() && err == nil {
		dev.Close()
		err = ctx.Err()
	}
	return dev, err
}

// onClose calls f in a goroutine when closed is closed, until the result is called, which
// waits for the goroutine.
func onClose(closed <-chan struct{}, f func()) (stop func()) {
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-closed:
			f()
		case <-over:
		}
	}()
	return func() { close(over); <-ended }
}

// end ends the session. The caller holds opening.
func (a *attachment) end() {
	if a.current != nil {
		a.current.Disable()
		a.current = nil
	}
}

// Close implements ntb.Attachment.
func (a *attachment) Close() error {
	a.once.Do(func() {
		close(a.closed)
		a.opening <- struct{}{}
		a.end()
		<-a.opening
	})
	return nil
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
