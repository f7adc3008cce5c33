//go:build linux && (amd64 || arm64)

package ntbshm

import "sync/atomic"

// shut is far below any number of calls.
const shut = -1 << 62

// gate counts the calls that use the mappings and the peer's doorbells, so that
// Close can release them when the last call has left. A call costs two additions
// and never waits.
type gate struct {
	n     atomic.Int64  // calls inside, plus shut once it is shut
	empty chan struct{} // capacity 1; sent to when the last call leaves a shut gate
}

func newGate() gate { return gate{empty: make(chan struct{}, 1)} }

// enter tells if the caller may go on, and must leave.
func (g *gate) enter() bool {
	if g.n.Add(1) > 0 {
		return true
	}
	g.leave()
	return false
}

func (g *gate) leave() {
	if g.n.Add(-1) == shut {
		select {
		case g.empty <- struct{}{}:
		default: // somebody who was not let in has left before
		}
	}
}

// shutAndWait is called once. On return nobody is inside, and nobody enters.
func (g *gate) shutAndWait() {
	if g.n.Add(shut) != shut {
		<-g.empty
	}
}
