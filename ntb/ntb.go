package ntb

import "errors"

// Errors of devices. A backend wraps them with what it was doing.
var (
	// ErrClosed: this side closed the device.
	ErrClosed = errors.New("ntb: device closed")
	// ErrLinkDown: the peer or the cable is gone.
	ErrLinkDown = errors.New("ntb: link down")
	// ErrNotSupported: this system has no such backend.
	ErrNotSupported = errors.New("ntb: not supported on this system (needs Linux on amd64 or arm64)")
)

// Caps tells what a device has. It does not change while the device is open.
type Caps struct {
	// Backend is the short name of the backend: "shm", "mem".
	Backend string
	// Doorbells is the number of doorbell bits, 1 to 64. Each bit is waited for
	// on its own.
	Doorbells int
	// Scratchpads is the number of 32-bit scratchpad registers, at least 8.
	Scratchpads int
	// Coherent: the peer's memory is on this machine, so that reading it would
	// be cheap and processor atomics work on it. Nothing may depend on it but
	// what has another way too.
	Coherent bool
	// LossyDoorbells: doorbells can get lost, so whoever waits must look at
	// memory now and then.
	LossyDoorbells bool
	// FenceToLook: a store that is followed by a look for the peer's answer
	// needs [Fence] between the two. It is false where [Device.Order] makes
	// the peer's stores visible all by itself.
	FenceToLook bool
	// DMAChannels is the number of DMA channels; 0 means no engine.
	DMAChannels int
}

// Device is one end of a bridge. Its methods may be called at the same time
// from any goroutine.
type Device interface {
	// Caps tells what the device has.
	Caps() Caps

	// Inbound is the window of this side's memory that the peer writes into. It
	// begins on a 64-byte boundary, and is all zero when the device is made. It
	// stays readable until Close, also after the link went down.
	Inbound() []byte

	// Outbound is the peer's inbound window, to be written only. Stores made
	// while the link is down may vanish.
	Outbound() Window

	// Spad reads this side's scratchpad i. A scratchpad that was never written
	// is 0; every bit is 1 if the link is gone.
	Spad(i int) uint32

	// SetPeerSpad writes the peer's scratchpad i. It is ordered after the
	// stores made through the outbound window.
	SetPeerSpad(i int, v uint32)

	// RingDoorbell rings a doorbell bit of the peer. It is ordered after the
	// stores made through the outbound window. It never blocks.
	RingDoorbell(bit int)

	// WaitDoorbell returns nil after bit was rung, having cleared it, and also
	// for no reason at all. When the link goes down it returns ErrLinkDown, at
	// once and ever after; after Close, ErrClosed. One goroutine may wait for
	// each bit.
	WaitDoorbell(bit int) error

	// LinkUp tells if the peer is reachable.
	LinkUp() bool

	// Order is called by whoever is about to sleep, between its last store and
	// its last look. On return, (1) this side's earlier stores are visible to
	// the peer and (2) what the peer stored without having seen them is visible
	// here. It may take microseconds.
	Order()

	// DMA returns channel i, 0 <= i < Caps().DMAChannels.
	DMA(i int) DMAChannel

	// Disable takes the link down for good: WaitDoorbell returns ErrLinkDown on
	// both sides. The windows stay until Close.
	Disable()

	// Close takes the link down and releases the memory. The caller must have
	// stopped using Inbound and Outbound. What this side stored before arrives
	// before the peer sees the link down. It may be called twice.
	Close() error
}

// DMAChannel copies local memory into the peer's inbound window without the
// CPU. A channel's copies arrive in order; they are not ordered with stores
// made through a Window.
type DMAChannel interface {
	// Start queues a copy of src to offset off of the outbound window, or
	// returns false if the queue is full. It does not block. When the copy has
	// arrived, or has failed, done is called, once, on another goroutine, in the
	// order of the starts. src must not change before. When done is called, the
	// engine stores nothing more for this copy, whatever the error.
	Start(off int, src []byte, done func(error)) bool
}

// Reclaimer is what a device has that can give memory of its inbound window
// back to the system.
type Reclaimer interface {
	// Reclaim gives back the memory of the pages that lie wholly in the bytes
	// [off, off+n) of the inbound window. Those pages read as zero afterwards
	// and take memory again when they are stored to; bytes of the range that
	// share a page with others stay as they are. The peer must not be using the
	// range. A range outside of the window panics. It returns ErrClosed after
	// Close, or the system's error.
	Reclaim(off, n int) error
}
