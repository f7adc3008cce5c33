package ntbfixed

import "github.com/ntbnet/ntbnet/ntb"

// claim finds out whether another process has a session at this end of the bridge. Nothing but
// the memory can show that: two processes at one end store to the same page, that of the peer. So
// this side reads there what it should be alone to store, across the bridge, and during bring-up
// only. A word is all zeros or all ones while the peer is not set up.
//
// The process that came first keeps the end. One that comes later finds its epoch, and looks
// at its heartbeat for as long as it takes to call it dead, unless it is known that its process has ended.
// Of two that come at the same moment,
// at least one finds its words overwritten.
type claim struct {
	far    []byte // the peer's page
	own    uint32 // epoch of the last session here that stored something; 0 for none
	dead   int    // ticks without a heartbeat after which a session is dead; immutable
	beat   uint64 // the heartbeat at the last look
	silent int    // looks since it changed
}

// A finding is the result of a look.
type finding int

const (
	unknown finding = iota // another session may live: look again in a tick
	free
	inUse
)

// first looks for the first time, before this side stores anything. former reports whether the process of a session
// that says Told has ended, which has an id; it may be nil.
func (c *claim) first(former func(id uint32) bool) finding {
	c.beat, c.silent = ntb.Load64(c.far, heartbeatAt), 0
	epoch := uint32(ntb.Load64(c.far, epochAt))
	if !isEpoch(epoch) || epoch == c.own || ntb.Load64(c.far, stateAt) == uint64(epoch)|stateEnded<<32 {
		return free
	}
	if former != nil && toldOf(c.far, epoch) && former(uint32(ntb.Load64(c.far, idAt))) {
		return free
	}
	return unknown
}

// next looks again, a tick later.
func (c *claim) next() finding {
	switch beat := ntb.Load64(c.far, heartbeatAt); {
	case beat != c.beat && isEpoch(uint32(beat>>32)):
		return inUse
	case c.silent+1 >= c.dead:
		return free
	}
	c.silent++
	return unknown
}

// begin notes the epoch of the session that is about to store something.
func (c *claim) begin(epoch uint32) { c.own = epoch }

// holds reports whether no other process has stored anything here since that session did.
func (c *claim) holds() bool {
	epoch := uint32(ntb.Load64(c.far, epochAt))
	return epoch == c.own || !isEpoch(epoch)
}

// isEpoch reports whether a word is the epoch of a session.
func isEpoch(word uint32) bool { return word != 0 && word != ^uint32(0) }
