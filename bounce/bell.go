package bounce

import "sync/atomic"

// bell wakes the peer's reader.
type bell struct {
	control *control      // immutable
	seen    atomic.Uint32 // the peer's data arm that was answered
	rung    atomic.Uint64 // how often
}

// announce is called after a record was published. If the peer's reader has announced
// that it is about to sleep, announce notifies it, once for each such announcement.
// Write calls it, and so does the completion of a DMA engine. It pairs with wait:
// either this side sees the peer's arm, or the peer sees the record (pair S1).
func (b *bell) announce() {
	for {
		seen := b.seen.Load()
		arm := b.control.peerArm(offDataArm, seen)
		if !armed(arm, seen) {
			return
		}
		if b.seen.CompareAndSwap(seen, arm) {
			b.rung.Add(1)
			b.control.notifyReader()
			return
		}
	}
}
