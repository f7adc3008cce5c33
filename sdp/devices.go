package sdp

import (
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/ntb"
)

// Devices are the devices that a program supplies to a fabric: see [OpenWith]. Its zero value
// supplies none.
type Devices struct {
	// Attach, if not nil, returns this node's end of the bridge to a neighbour, or nil if the
	// link is to be made of shared memory. It is called once for each link of this node,
	// before OpenWith returns. If it fails, so does OpenWith. The fabric must be a ring:,
	// line: or mesh:, and this process the owner of its node's links, as it is with nodes=N.
	//
	// The Fabric owns what Attach returns, and closes it when the last Fabric of this name in
	// the process is closed. It opens one
	// session after the other: when the neighbour's process ends, however it ends, its
	// connections end, and the next session begins when a process comes in its place.
	// Nothing but the bridge need join the two hosts. What does not fit is refused on both
	// sides: the error of a dial and [FabricStats] have the reason.
	//
	// Each session's windows need room for the lanes and 64 KiB more, that is 0.6 MB for
	// lanes=1. It needs one doorbell more than there are lanes. The
	// option window does not count: a bridge's windows are as large as they are.
	Attach func(Wire) (ntb.Attachment, error)

	// Wrap, if not nil, puts other devices around the ends of each bridge of this process,
	// such as ones that have a DMA engine ([ntb.Caps]), or faults for a trial. Where b is
	// nil, the other end is not this Fabric's to wrap.
	Wrap func(a, b ntb.Device) (ntb.Device, ntb.Device)
}

// Wire is a link of a node to a neighbour, in the plan of the fabric.
type Wire struct {
	Number    int // the same at both ends, from 1 on
	Node      int // this node
	Neighbour int // the node at the other end
	Side      Side
}

// Side is the side of a node on which a wire is. In a ring of two nodes the same neighbour is
// on both.
type Side string

// The sides of a node.
const (
	SideLeft   Side = "left"   // towards the node whose number is one less
	SideRight  Side = "right"  // towards the node whose number is one more
	SideDirect Side = "direct" // in a mesh, which has no sides
)

// put sets the devices of a fabric that is opened.
func (d *Devices) put(s *spec.Spec) {
	s.Wrap = d.Wrap
	if d.Attach != nil {
		s.Attach = func(w spec.Wire) (ntb.Attachment, error) {
			return d.Attach(Wire{Number: w.Number, Node: w.Node, Neighbour: w.Neighbour, Side: Side(w.Side)})
		}
	}
}
