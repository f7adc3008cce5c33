package bounce

import (
	"fmt"
	"math/bits"

	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/ntb"
)

// Words of a line. See the package comment.
const (
	offCredit   = 0
	offGrant    = 8
	offDataArm  = 16
	offSpaceArm = 20
	offState    = 24
)

// lines are the control blocks of a connection: our line, which the peer writes, and the
// peer's line, which we write.
type lines struct {
	// Immutable after newPair and NewPair.
	peer    *link.Peer
	slot    int    // of our line
	here    []byte // our line
	fence   bool   // a look needs a fence after a publish
	watches bool   // both sides see arrive what the other one stores, and need not be told to ring

	// Constant after Connect.
	far     ntb.Window // the peer's line
	farSlot int
}

// connect takes what the peer has named. It refuses an endpoint that would have us store
// where no connection's memory can be, and otherwise returns the queue that we write.
func (l *lines) connect(far End) (ntb.Window, error) {
	if int64(far.Slot) >= int64(l.peer.RemoteSlots()) {
		return ntb.Window{}, fmt.Errorf("%w: slot %d of %d", ErrBadGrant, far.Slot, l.peer.RemoteSlots())
	}
	win, err := l.remoteQueue(far.Offset, uint64(far.Size))
	if err != nil {
		return ntb.Window{}, err
	}
	remote := l.peer.Remote()
	l.far = remote.Slice(line*int(far.Slot), line)
	l.farSlot = int(far.Slot)
	return win, nil
}

// remoteQueue checks a queue that the peer named.
func (l *lines) remoteQueue(off, size uint64) (ntb.Window, error) {
	remote := l.peer.Remote()
	n := uint64(remote.Len())
	if size < minQueue || size > maxQueue || bits.OnesCount64(size) != 1 ||
		off%minQueue != 0 || off > n || size > n-off || off < uint64(line*l.peer.RemoteSlots()) {
		return ntb.Window{}, fmt.Errorf("%w: queue of %d bytes at %d of %d", ErrBadGrant, size, off, n)
	}
	return remote.Slice(int(off), int(size)), nil
}

// notifyReader has the peer check what there is to read.
func (l *lines) notifyReader() { l.peer.Notify(l.farSlot, link.Data) }

// notifyWriter has the peer check for room to write, and our state.
func (l *lines) notifyWriter() { l.peer.Notify(l.farSlot, link.Space) }

// state returns the peer's state word.
func (l *lines) state() uint32 { return ntb.Load32(l.here, offState) }

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
func (l *lines) spaceArm() uint32 { return ntb.Load32(l.here, offSpaceArm) }

// peerArm looks at an arm word of the peer after we published. If the word has not
// changed, a fence must come before the look in two cases: this device needs one,
// or the peer asks for it by parkingBit. With parkingBit the peer need not order
// our stores itself each time that it parks (pair S3, with order).
func (l *lines) peerArm(off int, seen uint32) uint32 {
	arm := ntb.Load32(l.here, off)
	if !armed(arm, seen) && (l.fence || arm&parkingBit != 0) {
		ntb.Fence()
		arm = ntb.Load32(l.here, off)
	}
	return arm
}
