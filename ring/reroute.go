package ring

import (
	"sync/atomic"
	"time"
)

// nextHop is where the frames of a tunnel go first, and what is known of the route behind it.
type nextHop struct {
	link *Link     // that they take; nil if there is no route
	side Direction // that frames take from this host
	made uint64    // identifies the links behind it, see router.madeLocked
	cut  time.Time // since when there is no route; zero if there is one, or none was looked for
}

// rerouteRequests are the calls of requestReroute, after links or link states have changed,
// that serveReroutes has not handled.
type rerouteRequests struct {
	count atomic.Uint32 // their number; the first starts serveReroutes
	probe atomic.Bool   // one of them asks to probe the other end
}

// requestReroute has the tunnel find its route again after links or link states have
// changed, and probe the other end if probe is true. It does not wait: a goroutine of its
// own does that, since a goroutine that stores to a device that blocks holds mu meanwhile.
func (t *tunnel) requestReroute(probe bool) {
	if probe {
		t.requests.probe.Store(true)
	}
	if t.requests.count.Add(1) == 1 {
		go t.serveReroutes()
	}
}

// serveReroutes handles calls of requestReroute until there was none meanwhile. At most one
// goroutine of a tunnel runs it.
func (t *tunnel) serveReroutes() {
	for {
		n := t.requests.count.Load()
		t.reroute()
		if t.requests.probe.Swap(false) {
			t.probe()
		}
		if t.requests.count.CompareAndSwap(n, 0) {
			return
		}
	}
}

// reroute finds the route again after the links have changed. Frames that are under
// way by another route, or by a link that was cut and made again, are sent again by
// the new one. If there is no route for long, the tunnel goes down.
func (t *tunnel) reroute() {
	t.mu.Lock()
	was := t.lane()
	defer t.leave(was)
	defer t.unlockAndSend()
	if t.arq.State().Over() {
		return
	}
	now := time.Now()
	found := nextHop{}
	found.link, found.side, found.made = t.router.nextHopTo(t.remote, t.epoch)
	switch {
	case found.link == nil:
		found.cut = t.nextHop.cut
		if found.cut.IsZero() {
			found.cut = now
		}
	case found == t.nextHop:
		return
	default:
		t.arq.Restart(now)
	}
	t.nextHop = found
	t.via.Store(found.link)
	t.push(now)
}

// leave ends the wait for a lane, unless that is the tunnel's. The caller does not hold mu.
func (t *tunnel) leave(was *outLane) {
	t.mu.Lock()
	now := t.lane()
	t.mu.Unlock()
	if was != nil && was != now {
		was.forget(waiter{source: t})
		t.mu.Lock()
		t.unlockAndSend() // waits again if the route has changed back meanwhile
	}
}

// probe finds out whether the other end still has the tunnel. Its process may have ended,
// and another one may have begun with the same id. A process that has nothing to send
// would not learn of it. The answer is an acknowledgement or a reset.
func (t *tunnel) probe() { t.step(t.arq.Probe) }
