// Package ntbfault is a device around a device that misbehaves as a real bridge
// may: stores arrive late, though in order, doorbells are late, lost or repeated,
// and windows are set up only after the link is up. All choices come from a seed. It finds code that works only because
// stores in one machine are visible at once: a look that should have come after
// Order, a wait that trusts a doorbell.
//
//	a, b := ntbfault.Pair(x, y, ntbfault.Options{Seed: 7, StoreDelayMax: 200 * time.Microsecond})
//
// It wraps both ends, which must be in one process, and is for tests. It is not
// a model of a bridge's speed: delays are at least what was asked for, and as
// much longer as the system's timers make them.
//
//	 side a                                                inner devices
//	Write, Publish ──┐                                  ┌─► Window of a
//	SetPeerSpad ─────┼─► one queue, in order, each ─────┼─► SetPeerSpad
//	RingDoorbell ────┘   entry with a time when it      │
//	                     is due at the earliest         └─► a further delay ─► RingDoorbell
//
// Side b has a queue of its own. Order waits for both.
package ntbfault
