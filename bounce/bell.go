package bounce

import "github.com/ntbnet/ntbnet/ring"

// announce is called after a record was published. If the peer's reader has announced
// that it is about to sleep, announce notifies it, once for each such announcement.
// Write calls it, and so does the completion of a DMA engine. It pairs with wait:
// either this side sees the peer's arm, or the peer sees the record (pair S1).
func (c *Pair) announce() {
	for {
		seen := c.dataSeen.Load()
		arm := c.peerArm(offDataArm, seen)
		if !armed(arm, seen) {
			return
		}
		if c.dataSeen.CompareAndSwap(seen, arm) {
			c.doorbells.Add(1)
			c.peer.Notify(c.farSlot, ring.Data)
			return
		}
	}
}
