//go:build race

package sdp

import (
	"sync/atomic"

	"github.com/ntbnet/ntbnet/bounce"
)

// The race detector does not see the memory that processes share. So that a
// program is not blamed for a hand-over through it, a Write or Close of any
// connection happens before a later Read of any other, as in package syscall.
// Memory on the heap is seen, and needs no help.

const raceEnabled = true

var handOver atomic.Uint32

func raceRelease(p *bounce.Pair) {
	if p.Peer().Caps().Backend != "mem" {
		handOver.Add(1)
	}
}

func raceAcquire(p *bounce.Pair) {
	if p.Peer().Caps().Backend != "mem" {
		handOver.Load()
	}
}
