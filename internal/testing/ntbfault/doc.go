// Package ntbfault wraps both ends of a bridge in devices that misbehave as a real bridge may.
// Stores arrive late, though in order. Doorbells are late, lost or repeated. Windows are set up
// only after the link is up. All choices come from a seed. The package finds code that works only
// because stores in one machine are visible at once. Examples are a check that should have come
// after Order, and a wait that relies on a doorbell.
//
//	a, b := ntbfault.Pair(x, y, ntbfault.Options{Seed: 7, StoreDelayMax: 200 * time.Microsecond})
//
// Both ends must be in one process. The package is for tests. It is not a model of a bridge's
// speed: delays are at least as long as requested, and longer by the precision of the system's
// timers.
//
//	 side a                                                inner devices
//	Write, Publish ──┐                                  ┌─► Window of a
//	SetPeerSpad ─────┼─► one queue, in order, each ─────┼─► SetPeerSpad
//	RingDoorbell ────┘   entry with a time when it      │
//	                     is due at the earliest         └─► a further delay ─► RingDoorbell
//
// Side b has a queue of its own. Order waits for both.
//
// [Combine] makes the window of one end write-combining: stores stay, or leave in any order, until the
// next flush. It finds a word that is not flushed, and can leave flushes out.
package ntbfault
