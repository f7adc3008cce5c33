package gate

import "sync/atomic"

// shut is far below any possible number of calls.
const shut = -1 << 62

// Gate counts the calls that use something, so that it can be released when the last call
// has left. A call costs two additions and never waits.
type Gate struct {
	n     atomic.Int64  // calls inside, plus shut once the gate is shut
	empty chan struct{} // capacity 1; sent to when the last call leaves a shut gate
}

// New returns an open Gate.
func New() Gate { return Gate{empty: make(chan struct{}, 1)} }

// Enter reports whether the caller may go on. If so, the caller must call Leave.
func (g *Gate) Enter() bool {
	if g.n.Add(1) > 0 {
		return true
	}
	g.Leave()
	return false
}

// Leave ends what a successful Enter began.
func (g *Gate) Leave() {
	if g.n.Add(-1) == shut {
		select {
		case g.empty <- struct{}{}:
		default: // a call that was not let in has left before
		}
	}
}

// ShutAndWait is called once. On return no call is inside, and none can enter.
func (g *Gate) ShutAndWait() {
	if g.n.Add(shut) != shut {
		<-g.empty
	}
}
