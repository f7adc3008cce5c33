//go:build race

package sdp

import (
	"sync/atomic"

	"github.com/ntbnet/ntbnet/bounce"
)

// The race detector does not see the memory that processes share. A program must
// not be blamed for a hand-over through it. So, as in package syscall, a Write or
// Close of any connection happens before a later Read of any other. Memory on the
// heap is seen, and needs no help.

const raceEnabled = true

var handover atomic.Uint32

func raceRelease(p *bounce.Pair) {
	if p.Peer().Caps().Backend != "mem" {
		handover.Add(1)
	}
}

func raceAcquire(p *bounce.Pair) {
	if p.Peer().Caps().Backend != "mem" {
		handover.Load()
	}
}
