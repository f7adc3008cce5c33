package tunnel

import (
	"errors"
	"fmt"
	"time"

	"github.com/ntbnet/ntbnet/internal/arq"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/ntb"
)

// nextHop is where the frames of a tunnel go first, and what is known of the route behind it.
type nextHop struct {
	lane Lane      // that they take; nil if there is no route
	made uint64    // identifies the links behind it, see Router
	cut  time.Time // since when there is no route; zero if there is one, or none was looked for
}

// RequestReroute has the tunnel find its route again after links or link states have
// changed, and probe the other end if probe is true. It does not wait: a goroutine of its
// own does that, since a goroutine that stores to a device that blocks holds mu meanwhile.
func (t *Tunnel) RequestReroute(probe bool) {
	if probe {
		t.probes.Store(true)
	}
	if t.requests.Add(1) == 1 {
		go t.serveReroutes()
	}
}

// serveReroutes handles calls of RequestReroute until there was none meanwhile. At most one
// goroutine of a tunnel runs it.
func (t *Tunnel) serveReroutes() {
	for {
		n := t.requests.Load()
		t.Reroute()
		if t.probes.Swap(false) {
			t.Probe()
		}
		if t.requests.CompareAndSwap(n, 0) {
			return
		}
	}
}

// Reroute finds the route again after the links have changed. Frames that are under
// way by another route, or by a link that was cut and made again, are sent again by
// the new one. If there is no route for long, the tunnel goes down.
func (t *Tunnel) Reroute() {
	t.mu.Lock()
	was := t.nextHop.lane
	defer t.leave(was)
	defer t.unlockAndSend()
	if t.arq.State().Over() {
		return
	}
	now := time.Now()
	found := nextHop{}
	found.lane, found.made = t.router.Route()
	switch {
	case found.lane == nil:
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
	t.push(now)
}

// leave ends the wait for a lane, unless that is the tunnel's. The caller does not hold mu.
func (t *Tunnel) leave(was Lane) {
	t.mu.Lock()
	now := t.nextHop.lane
	t.mu.Unlock()
	if was != nil && was != now {
		was.Forget(t)
		t.mu.Lock()
		t.unlockAndSend() // waits again if the route has changed back meanwhile
	}
}

// ErrUnreachable reports that no route leads to the process.
var ErrUnreachable = errors.New("ring: no route to node")

// grace is how long a process may be unreachable before its tunnels go down. That
// one link is mended and another is cut may become known in either order.
const grace = time.Second

// onRetransmitTimer sends again what is not acknowledged in time. The same timer is for what else
// a tunnel does later: it acknowledges alone, and ends if there is no route for long.
func (t *Tunnel) onRetransmitTimer() { t.expire(time.Now()) }

// expire does what is due at the time now.
func (t *Tunnel) expire(now time.Time) {
	t.mu.Lock()
	defer t.unlockAndSend()
	t.timer.at = time.Time{} // it must be set again for what is later
	switch {
	case t.nextHop.cut.IsZero():
		t.arq.Expire(now)
	case !t.arq.State().Over() && now.Sub(t.nextHop.cut) >= grace && !t.reachable():
		t.endFor(fmt.Errorf("%w: %w: %w %v", ntb.ErrLinkDown, link.ErrDown, ErrUnreachable, t.Remote))
	}
	t.push(now)
}

// reachable reports whether there is a route again, which reroute is about to find. The other end may have
// been answered by it. The caller holds mu.
func (t *Tunnel) reachable() bool {
	l, _ := t.router.Route()
	return l != nil
}

// setTimer sets the timer for what is due next. While there is no route, only the end of that is.
// The caller holds mu.
func (t *Tunnel) setTimer(now time.Time) {
	switch s := t.arq.State(); {
	case s == arq.Closed:
	case t.nextHop.cut.IsZero():
		t.timer.set(t.arq.Deadline(), now)
	case !s.Over():
		t.timer.set(t.nextHop.cut.Add(grace), now)
	}
}

// retransmitTimer is a timer for the earliest of several times.
type retransmitTimer struct {
	f     func()                                  // called when it goes off; immutable
	at    time.Time                               // when that is; zero: it is not set
	after func(time.Duration, func()) *time.Timer // immutable
	timer *time.Timer
}

// set has f called at a time, unless the timer is set for an earlier one. Zero is never.
func (a *retransmitTimer) set(at, now time.Time) {
	if at.IsZero() || !a.at.IsZero() && !at.Before(a.at) {
		return
	}
	a.at = at
	if a.timer == nil {
		a.timer = a.after(at.Sub(now), a.f)
	} else {
		a.timer.Reset(at.Sub(now))
	}
}

func (a *retransmitTimer) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}
