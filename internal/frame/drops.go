package frame

import "sync/atomic"

// Reason is why a frame was dropped.
type Reason int

// The reasons.
const (
	DropUnknownNode   Reason = iota // for a process of this host that does not exist, or one of our own that came back
	DropHops                        // went over too many links
	DropNoLink                      // the next link is down
	DropUnknownTunnel               // for a tunnel that does not exist, or of another epoch
	DropForged                      // for a tunnel that belongs to another process
	DropDuplicate                   // came before
	DropGap                         // one before it is missing
	DropBadBody                     // entries outside of the window or of the body
	DropClosed                      // for a tunnel that is closed here
	DropTooMany                     // one process asks for too many tunnels
	DropLinkState                   // a link state that no process may send
	DropSource                      // a member sent it in the name of another
	DropStopped                     // for a process that does not take frames, or through one
	DropStranger                    // asks for a tunnel in the name of a process that no link state names
	numDrops
)

var dropNames = [numDrops]string{
	"unknown node", "too many hops", "no link", "unknown tunnel", "forged tunnel", "duplicate", "gap",
	"bad body", "tunnel closed", "too many tunnels", "bad news", "forged source", "stopped",
	"unknown source",
}

func (why Reason) String() string { return dropNames[why] }

// Drops counts frames that were dropped, by the reason.
type Drops [numDrops]atomic.Uint64

// Count counts a frame.
func (d *Drops) Count(why Reason) { d[why].Add(1) }

// ByReason returns the numbers that are not zero, by the reason.
func (d *Drops) ByReason() map[string]uint64 {
	counts := map[string]uint64{}
	for why := range d {
		if v := d[why].Load(); v > 0 {
			counts[Reason(why).String()] = v
		}
	}
	return counts
}
