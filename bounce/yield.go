package bounce

import (
	"runtime"
	"time"
)

// Goroutines that spin, or whose waits end before they park, yield to others on two
// occasions.
//
// During a spin, from about a microsecond on: the awaited event may depend on a
// goroutine that is ready to run on this very processor, such as the one that was
// handed what the last call read. Another processor takes it over only after a pause
// of its own.
//
// After each turn: otherwise two sides that answer each other at once would keep the
// processors to themselves until the scheduler stops them.
const (
	firstYield = 32 // rounds of a spin
	turn       = 50 * time.Microsecond

	// turnWork is the work that worked takes for about a turn: bytes, plus callCost
	// for each call.
	turnWork = 1 << 20
	callCost = 256
)

// vain is how many times in a row yielding has let no other goroutine run, up to
// maxVain. Each doubles the time until the next yield. Where no goroutine is ready
// to run, yielding costs more than a quick answer, and a system call, since the
// runtime wakes an idle thread to look for work.
type vain int

const (
	maxVain = 5
	// vainYield is less than a goroutine takes that does anything, and more than a
	// yield that lets none run.
	vainYield = 2 * time.Microsecond
)

// yield yields at start, and returns the time after it.
func (v *vain) yield(start time.Time) time.Time {
	runtime.Gosched()
	now := time.Now()
	if now.Sub(start) > vainYield {
		*v = 0
	} else {
		*v = min(*v+1, maxVain)
	}
	return now
}
