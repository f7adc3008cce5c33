package ring

import "time"

// alarm is a timer for the earliest of several times.
type alarm struct {
	f     func()    // called when it goes off; immutable
	at    time.Time // when that is; zero: it is not set
	timer *time.Timer
}

// set has f called at a time, unless the alarm is set for an earlier one. Zero is never.
func (a *alarm) set(at, now time.Time) {
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

// wentOff is called by f. The alarm must be set again for what is later.
func (a *alarm) wentOff() { a.at = time.Time{} }

func (a *alarm) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}
