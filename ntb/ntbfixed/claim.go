package ntbfixed

import "github.com/ntbnet/ntbnet/ntb"

// claim finds out whether another process has a session at this end of the bridge. Nothing but
// the memory could tell: two processes at one end store to the same page, that of the peer. So
// this side reads there what it should be alone to store, across the bridge, and during bring-up
// only. A word is all zeros or all ones while the peer is not set up.
//
// The process that came first keeps the end. One that comes later finds its epoch, and watches
// its heartbeat for as long as it takes to call it dead. Of two that come at the same moment,
// at least one finds its words overwritten.
type claim struct {
	far    []byte // the peer's page
	own    uint32 // epoch of the last session here that said something; 0 for none
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

// first looks for the first time, before this side says anything.
func (c *claim) first() finding {
	c.beat, c.silent = ntb.Load64(c.far, heartbeatAt), 0
	epoch := uint32(ntb.Load64(c.far, epochAt))
	if !said(epoch) || epoch == c.own || ntb.Load64(c.far, stateAt) == uint64(epoch)|stateEnded<<32 {
		return free
	}
	return unknown
}

// next looks again, a tick later.
func (c *claim) next() finding {
	switch beat := ntb.Load64(c.far, heartbeatAt); {
	case beat != c.beat && said(uint32(beat>>32)):
		return inUse
	case c.silent+1 >= DeadTicks:
		return free
	}
	c.silent++
	return unknown
}

// says notes the epoch of the session that is about to say something.
func (c *claim) says(epoch uint32) { c.own = epoch }

// holds reports whether nobody else has said anything here since that session did.
func (c *claim) holds() bool {
	epoch := uint32(ntb.Load64(c.far, epochAt))
	return epoch == c.own || !said(epoch)
}

// said reports whether an epoch is a session's.
func said(epoch uint32) bool { return epoch != 0 && epoch != ^uint32(0) }
