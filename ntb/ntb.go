package ntb

import "errors"

// Errors of devices. A backend wraps them with a description of the operation.
var (
	// ErrClosed reports that this side closed the device.
	ErrClosed = errors.New("ntb: device closed")
	// ErrLinkDown reports that the peer or the cable is gone.
	ErrLinkDown = errors.New("ntb: link down")
	// ErrVersion reports that the two sides of a bridge use different versions of what the
	// backend says there.
	ErrVersion = errors.New("ntb: versions differ, update the side with the lower one")
	// ErrInUse reports that another process uses this end of a bridge.
	ErrInUse = errors.New("ntb: another process uses this end of the bridge")
	// ErrNotSupported reports that this system has no such backend.
	ErrNotSupported = errors.New("ntb: not supported on this system (needs Linux on amd64 or arm64)")
)

// Caps describes a device. It does not change while the device is open.
type Caps struct {
	// Backend is the short name of the backend: "shm", "mem".
	Backend string
	// Doorbells is the number of doorbell bits, 1 to 64. Each bit has a waiter of
	// its own.
	Doorbells int
	// Scratchpads is the number of 32-bit scratchpad registers, at least 8.
	Scratchpads int
	// Coherent is set if the peer's memory is on this machine. Then it is cheap to
	// read, and processor atomics work on it. Only code that has another way too
	// may depend on it.
	Coherent bool
	// Revocable reports whether the memory of Inbound has gone. It is nil if that cannot happen while
	// the device is open. Where it is not nil, Untrusted is set.
	Revocable Revocable
	// Mapper maps memory of Inbound at other addresses as well. It is nil if that memory cannot be mapped.
	Mapper Mapper
	// SameProcess is set if goroutines of this process store what comes. A wait for it lets them run.
	SameProcess bool
	// RemoteCPU is set if the process at the other end runs on the processors of another machine. So
	// it can answer while the only processor of this one polls.
	RemoteCPU bool
	// LossyDoorbells is set if doorbells can get lost. Then a waiter must also poll
	// memory from time to time.
	LossyDoorbells bool
	// FenceToLook is set if a store needs a [Fence] before a load that checks for
	// the peer's answer. It is not set where [Device.Order] alone makes the peer's
	// stores visible.
	FenceToLook bool
	// DMAChannels is the number of DMA channels; 0 means no engine.
	DMAChannels int
	// Reclaims is set if [Device.Reclaim] works.
	Reclaims bool

	// User is the user of the process at the other end, as the kernel of this machine reports
	// it. It is nil if the kernel does not know.
	User *User
	// Untrusted is set unless the process at the other end is known to be of this process'
	// user. What it has published it may change while that is used, so that is copied
	// first.
	Untrusted bool
}

// Revocable is memory that can go while it is mapped.
type Revocable interface {
	// Gone reports whether some of the memory has gone. Then it reads as zeros, and the link soon goes
	// down. What was copied before Gone reports true must not be used.
	Gone() bool
}

// Mapper maps memory of the inbound window at addresses of its caller's.
type Mapper interface {
	// MapAt maps the bytes [off, off+len(at)) of the inbound window over at, which is mapped memory. off, at and
	// its length are multiples of the system's page. Once the session has ended, at has memory of its own,
	// which holds the same, as Inbound has. The caller calls release before it unmaps at. Where the session has
	// ended, the error is ErrLinkDown.
	MapAt(off int, at []byte) (release func(), err error)
}

// User is the user of a process. It is that of the moment when the process made its end of a
// bridge. A number is -1 if it stands for all who have none in this user namespace.
type User struct {
	PID    int // 0 if the process is of another pid namespace
	UID    int
	GID    int
	Groups []int // supplementary
}

// Device is one end of a bridge. Its methods may be called at the same time
// from any goroutine.
//
// What not every device can do is stated by its Caps, and every Device has the methods for
// it. So a device around a device has the abilities of the inner one, except those that it
// takes out of its Caps. No type assertion asks for an ability.
type Device interface {
	// Caps returns the device's properties.
	Caps() Caps

	// Inbound returns the window of this side's memory that the peer writes into.
	// It begins on a 64-byte boundary, and is all zero when the device is made. It
	// stays readable until Close, even after the link went down.
	Inbound() []byte

	// Outbound returns the peer's inbound window, for writing only. Stores made
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

	// WaitDoorbell waits until bit is rung, clears it and returns nil. It may also
	// return nil for no reason at all. When the link goes down it returns
	// ErrLinkDown, at once and ever after. After Close it returns ErrClosed. One
	// goroutine may wait for each bit.
	WaitDoorbell(bit int) error

	// LinkUp reports whether the peer is reachable.
	LinkUp() bool

	// Order is called by a waiter that is about to sleep, between its last store
	// and its last check. On return, (1) this side's earlier stores are visible to
	// the peer and (2) every store that the peer made before it could see them is
	// visible here. So at least one side sees the other's. It may take microseconds.
	Order()

	// DMA returns channel i, 0 <= i < Caps().DMAChannels.
	DMA(i int) DMAChannel

	// Reclaim returns the memory of some pages to the system. These are the pages
	// that lie wholly in the bytes [off, off+n) of the inbound window. They read as
	// zero afterwards, and take memory again when they are stored to. Bytes of the
	// range that share a page with others stay as they are. The peer must not be
	// using the range. Reclaim panics if the range is outside of the window. It
	// returns ErrClosed after Close, or the system's error, and ErrNotSupported unless
	// Caps().Reclaims is set. Memory that an IOMMU has pinned cannot be reclaimed.
	Reclaim(off, n int) error

	// Disable takes the link down for good. WaitDoorbell then returns ErrLinkDown
	// on both sides. The windows stay until Close.
	Disable()

	// Close takes the link down and releases the memory. The caller must have
	// stopped using Inbound and Outbound. What this side stored before arrives
	// before the peer sees the link down. Close may be called twice.
	Close() error
}

// DMAChannel copies local memory into the peer's inbound window without the CPU.
// The copies of a channel arrive in order. They are not ordered with stores made
// through a Window. An engine reads only memory that is registered with it, so the channel
// allocates what it can read.
type DMAChannel interface {
	// Alloc returns n bytes that the channel can read, n from 1 on. They are zero, and begin
	// on a 64-byte boundary. The caller owns them until Free. The error reports that no
	// more memory can be registered.
	Alloc(n int) ([]byte, error)

	// Free gives back what Alloc returned. No copy may be reading it. It may be called after
	// the device is closed. It panics if mem is not what Alloc returned, as a whole.
	Free(mem []byte)

	// Start queues a copy of src to offset off of the outbound window, or returns
	// false if the queue is full. It does not block. When the copy has arrived, or
	// has failed, done is called once, on another goroutine. The calls of done have
	// the order of the starts. src must not change before done is called. From then
	// on the engine stores nothing more for this copy, whatever the error. Start panics
	// if src does not lie within memory that Alloc of this channel has returned.
	Start(off int, src []byte, done func(error)) bool
}
