package ring

import (
	"context"
	"errors"

	"github.com/ntbnet/ntbnet/ntb"
)

// Join makes the node part of a fabric of several hosts. It must be called once,
// after Register and before Link and Peer. The node's id must have a host of 1
// to o.Nodes.
func (n *Node) Join(o Options) error { return errors.New("ring: not built yet") }

// Link brings up a link to the neighbour in direction d over dev, which it owns
// from then on: the lanes that frames are forwarded by, and the neighbour's
// direct Peer. It waits for the other side until ctx ends. In a ring or a line d
// is Left or Right, the neighbour's end of the link is the other one, and the
// neighbour must be the host of that place; in a mesh d is Direct at both ends.
//
// When a link has gone down, Link may be called again with a new device for the
// same neighbour. While a link of that direction is up, a second one is an
// error.
//
// The device needs Options.Lanes+1 doorbell bits and 16 scratchpads. Its window
// needs room for the lanes and MinWindow; [Options.LinkWindow] says how much.
//
// Its errors are ErrVersion, ErrMismatch and ErrSameID, on both sides, ErrDown,
// ErrClosed, and that of ctx.
func (n *Node) Link(ctx context.Context, dev ntb.Device, d Direction) (*Link, error) {
	return nil, errors.New("ring: not built yet")
}

// Peer is another node, by its id. For a neighbour whose link is up it is the
// direct peer, unless [Options.Failover] is set; for others, or with Failover,
// it is a routed one, made when first asked for, at both ends: the other node's
// services are opened too. It waits for the other node's answer until ctx ends.
// It returns ErrUnreachable if no way leads there, at once when that is known.
//
// The peer's Done is closed when the node is unreachable for a second, in all
// directions.
func (n *Node) Peer(ctx context.Context, id ID) (*Peer, error) {
	return nil, errors.New("ring: not built yet")
}

// Topology is a snapshot of the fabric as this node sees it.
func (n *Node) Topology() Snapshot { return Snapshot{} }

// LinkWindow is how large each side's window of a link must be for the lanes,
// and a region of size bytes for the direct peer.
func (o Options) LinkWindow(size int) int { return 0 }

// Link is a link to a neighbour.
type Link struct{}

// Peer is the neighbour's direct peer.
func (l *Link) Peer() *Peer { return nil }

// ID is the neighbour's id.
func (l *Link) ID() ID { return 0 }

// Direction is where the link leads.
func (l *Link) Direction() Direction { return 0 }

// Done is closed when the link is down and nothing uses its lanes any more.
func (l *Link) Done() <-chan struct{} { return nil }

// Err is why the link went down, nil while it is up.
func (l *Link) Err() error { return nil }

// Close takes the link down, as if its cable was cut.
func (l *Link) Close() {}
