//go:build linux && (amd64 || arm64)

package ntbshm

import "sync/atomic"

// shut is far below any possible number of calls.
const shut = -1 << 62

// gate counts the calls that use the mappings and the peer's doorbells, so that
// Close can release these when the last call has left. A call costs two additions
// and never waits.
type gate struct {
	n     atomic.Int64  // calls inside, plus shut once the gate is shut
	empty chan struct{} // capacity 1; sent to when the last call leaves a shut gate
}

func newGate() gate { return gate{empty: make(chan struct{}, 1)} }

// enter reports whether the caller may go on. If so, the caller must call leave.
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
		default: // a call that was not let in has left before
		}
	}
}

// shutAndWait is called once. On return no call is inside, and none can enter.
func (g *gate) shutAndWait() {
	if g.n.Add(shut) != shut {
		<-g.empty
	}
}
