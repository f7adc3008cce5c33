package ring

import (
	"fmt"
	"time"

	"github.com/ntbnet/ntbnet/internal/arq"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/ntb"
)

// onRetransmitTimer sends again what is not acknowledged in time. The same timer is for what else
// a tunnel does later: it acknowledges alone, and ends if there is no route for long.
func (t *tunnel) onRetransmitTimer() { t.expire(time.Now()) }

// expire does what is due at the time now.
func (t *tunnel) expire(now time.Time) {
	t.mu.Lock()
	defer t.unlockAndSend()
	t.timer.at = time.Time{} // it must be set again for what is later
	switch {
	case t.nextHop.cut.IsZero():
		t.arq.Expire(now)
	case !t.arq.State().Over() && now.Sub(t.nextHop.cut) >= grace && !t.reachable():
		t.endFor(fmt.Errorf("%w: %w: %w %v", ntb.ErrLinkDown, link.ErrDown, ErrUnreachable, t.remote))
	}
	t.push(now)
}

// reachable reports whether there is a route again, which reroute is about to find. The other end may have
// been answered by it. The caller holds mu.
func (t *tunnel) reachable() bool {
	l, _, _ := t.router.nextHopTo(t.remote, t.epoch)
	return l != nil
}

// setTimer sets the timer for what is due next. While there is no route, only the end of that is.
// The caller holds mu.
func (t *tunnel) setTimer(now time.Time) {
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
	f     func()    // called when it goes off; immutable
	at    time.Time // when that is; zero: it is not set
	timer *time.Timer
}

// set has f called at a time, unless the timer is set for an earlier one. Zero is never.
func (a *retransmitTimer) set(at, now time.Time) {
	if at.IsZero() || !a.at.IsZero() && !at.Before(a.at) {
		return
	}
	a.at = at
	if a.timer == nil {
		a.timer = time.AfterFunc(at.Sub(now), a.f)
	} else {
		a.timer.Reset(at.Sub(now))
	}
}

func (a *retransmitTimer) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}
