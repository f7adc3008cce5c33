//go:build race

package ring

import "sync/atomic"

// The memory of a tunnel is on the heap, where the race detector sees it, but who
// stores there next may have been told so by another process, or through memory
// that processes share, which it does not see. So a frame that goes into a lane
// happens before any that comes out of one later. Where the lanes are on the heap
// too, all is seen.

var handOver atomic.Uint32

func (l *Link) raceRelease() {
	if l.caps.Backend != "mem" {
		handOver.Add(1)
	}
}

func (l *Link) raceAcquire() {
	if l.caps.Backend != "mem" {
		handOver.Load()
	}
}
