//go:build race

package ring

import "sync/atomic"

// The memory of a tunnel is on the heap, where the race detector sees it. But the
// next goroutine that stores there may have learnt that it may from another
// process, or through memory that processes share, which the detector does not see.
// So these calls make a frame that goes into a lane happen before any that comes
// out of one later. Where the lanes are on the heap too, the detector sees
// everything.

var handover atomic.Uint32

func (l *Link) raceRelease() {
	if l.caps.Backend != "mem" {
		handover.Add(1)
	}
}

func (l *Link) raceAcquire() {
	if l.caps.Backend != "mem" {
		handover.Load()
	}
}
