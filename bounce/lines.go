package bounce

import (
	"fmt"
	"math/bits"

	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ring"
)

// Words of a line. See the package comment.
const (
	offCredit   = 0
	offGrant    = 8
	offDataArm  = 16
	offSpaceArm = 20
	offState    = 24
)

func (c *Pair) peerState() uint32 { return ntb.Load32(c.line, offState) }

// takesNothing reports whether a peer with that state takes nothing more.
func takesNothing(state uint32) bool { return state&^stateFinished != 0 }

// ended reports whether the peer does nothing more in a direction: it gave up, or it
// reads no more.
func (c *Pair) ended(direction int) bool {
	if direction == ring.Data {
		return c.peerState()&stateReset != 0
	}
	return takesNothing(c.peerState())
}

// changed reports whether there is something for a waiter in a direction. The
// caller holds its lock.
func (c *Pair) changed(direction int) bool {
	if direction == ring.Data {
		return c.rx.ready()
	}
	return ntb.Load64(c.line, offCredit) != c.creditSeen || ntb.Load64(c.line, offGrant) != c.grantSeen
}

// The low bits of an arm word. The bits above distinguish one arm from the next.
const (
	parkingBit = 1 << iota // fence between each publish and the look at this word
	armedBit               // the side that published it sleeps or is about to
	growBit                // that side also wants a larger queue; in space arms only
	armShift   = iota
)

// armed reports whether the peer sleeps, or is about to, and was not notified yet.
func armed(arm, seen uint32) bool { return arm&armedBit != 0 && (arm^seen)>>armShift != 0 }

// peerArm looks at an arm word of the peer after we published. If the word has not
// changed, a fence must come before the look in two cases: this device needs one,
// or the peer asks for it by parkingBit. With parkingBit the peer need not order
// our stores itself each time that it parks (pair S3, with order).
func (c *Pair) peerArm(off int, seen uint32) uint32 {
	arm := ntb.Load32(c.line, off)
	if !armed(arm, seen) && (c.fence || arm&parkingBit != 0) {
		ntb.Fence()
		arm = ntb.Load32(c.line, off)
	}
	return arm
}

// publishArm publishes our arm word of a direction with the given low bits.
func (c *Pair) publishArm(direction int, bits uint32) {
	if direction == ring.Data {
		c.far.Update32(offDataArm, c.dataArm<<armShift|bits)
	} else {
		c.far.Update32(offSpaceArm, c.tx.gen<<24|c.spaceArm<<armShift&0xffffff|bits)
	}
}

// remoteQueue checks a queue that the peer named.
func (c *Pair) remoteQueue(off, size uint64) (ntb.Window, error) {
	remote := c.peer.Remote()
	n := uint64(remote.Len())
	if size < minQueue || size > maxQueue || bits.OnesCount64(size) != 1 ||
		off%minQueue != 0 || off > n || size > n-off || off < uint64(line*c.peer.RemoteSlots()) {
		return ntb.Window{}, fmt.Errorf("%w: queue of %d bytes at %d of %d", ErrBadGrant, size, off, n)
	}
	return remote.Slice(int(off), int(size)), nil
}
