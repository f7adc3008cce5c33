package bounce

import (
	"fmt"
	"math/bits"

	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/ntb"
)

// Words of a control block: docs/protocol/stream.md has their layout.
const (
	controlSize = 64

	offCredit   = 0
	offGrant    = 8
	offDataArm  = 16
	offSpaceArm = 20
	offState    = 24
)

// control is the two control blocks of a connection: ours, which the peer writes, and the
// peer's, which we write.
type control struct {
	// Immutable after newPair and NewPair.
	peer  *link.Peer
	slot  int    // of our control block
	here  []byte // our control block
	fence bool   // a look needs a fence after a publish
	// frames lead to the peer, or nil. Both sides see arrive what the other one stores, and need no notification.
	frames link.Frames

	// Constant after Connect.
	far     ntb.Window // the peer's control block
	farSlot int
}

// connect takes what the peer has named. It refuses an endpoint that would have us store
// where no connection's memory can be, and otherwise returns the queue that we write.
func (c *control) connect(far Endpoint) (ntb.Window, error) {
	if int64(far.Slot) >= int64(c.peer.RemoteSlots()) {
		return ntb.Window{}, fmt.Errorf("%w: slot %d of %d", ErrBadGrant, far.Slot, c.peer.RemoteSlots())
	}
	win, err := c.remoteQueue(far.Offset, uint64(far.Size))
	if err != nil {
		return ntb.Window{}, err
	}
	remote := c.peer.Remote()
	c.far = remote.Slice(controlSize*int(far.Slot), controlSize)
	c.farSlot = int(far.Slot)
	return win, nil
}

// remoteQueue checks a queue that the peer named.
func (c *control) remoteQueue(off, size uint64) (ntb.Window, error) {
	remote := c.peer.Remote()
	n := uint64(remote.Len())
	if size < minQueue || size > maxQueue || bits.OnesCount64(size) != 1 ||
		off%minQueue != 0 || off > n || size > n-off || off < uint64(controlSize*c.peer.RemoteSlots()) {
		return ntb.Window{}, fmt.Errorf("%w: queue of %d bytes at %d of %d", ErrBadGrant, size, off, n)
	}
	return remote.Slice(int(off), int(size)), nil
}

// notifyReader has the peer check what there is to read.
func (c *control) notifyReader() { c.peer.Notify(c.farSlot, link.Data) }

// notifyWriter has the peer check for room to write, and our state.
func (c *control) notifyWriter() { c.peer.Notify(c.farSlot, link.Space) }

// state returns the peer's state word.
func (c *control) state() uint32 { return ntb.Load32(c.here, offState) }

// takesNothing reports whether a peer with that state takes nothing more.
func takesNothing(state uint32) bool { return state&^stateFinished != 0 }

// The low bits of an arm word. The bits above distinguish one arm from the next.
const (
	parkingBit = 1 << iota // fence between each publish and the look at this word
	armedBit               // the side that published it sleeps or is about to
	growBit                // that side also wants a larger queue; in space arms only
	armShift   = iota
)

// armed reports whether the peer sleeps, or is about to, and was not notified yet.
func armed(arm, seen uint32) bool { return arm&armedBit != 0 && (arm^seen)>>armShift != 0 }

// spaceArm returns the arm word of the peer's writer, without an order.
func (c *control) spaceArm() uint32 { return ntb.Load32(c.here, offSpaceArm) }

// peerArm looks at an arm word of the peer after we published. If the word has not
// changed, a fence must come before the look in two cases: this device needs one,
// or the peer asks for it by parkingBit. With parkingBit the peer need not order
// our stores itself each time that it parks (pair S3, with order).
func (c *control) peerArm(off int, seen uint32) uint32 {
	arm := ntb.Load32(c.here, off)
	if !armed(arm, seen) && (c.fence || arm&parkingBit != 0) {
		ntb.Fence()
		arm = ntb.Load32(c.here, off)
	}
	return arm
}
