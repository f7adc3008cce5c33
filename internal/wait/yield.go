package wait

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
// of its own. A spin that offers its processor to other processes yields before it does so.
//
// After each time slice: otherwise two sides that answer each other at once would keep the
// processors to themselves until the scheduler stops them.
const (
	firstYield = 32 // polls, in a spin that offers no processor
	slice      = 50 * time.Microsecond

	// sliceWork is the work that Worked takes for about a time slice: bytes, plus callCost
	// for each call.
	sliceWork = 1 << 20
	callCost  = 256
)

// fruitless is how many times in a row yielding has let no other goroutine run, up to
// maxFruitless. Each doubles the time until the next yield. Where no goroutine is ready
// to run, yielding costs more than a quick answer, and a system call, since the
// runtime wakes an idle thread to look for work.
type fruitless int

const (
	maxFruitless = 5
	// fruitlessYield is less than a goroutine takes that does anything, and more than a
	// yield that lets none run and wakes no thread.
	fruitlessYield = 2 * time.Microsecond
	// wakingYield is more than a yield that lets no goroutine run and wakes a thread, which takes 7 µs
	// on a virtual machine. It may have let one run for a moment, so such a yield doubles the time no more
	// than maxWaking times.
	wakingYield = 15 * time.Microsecond
	maxWaking   = 3
)

// yield yields at start, and returns the time after it. If it takes longer than most, a goroutine has
// run.
func (f *fruitless) yield(start time.Time, most time.Duration) time.Time {
	runtime.Gosched()
	now := time.Now()
	f.count(now.Sub(start), most)
	return now
}

// endSlice is yield at the end of a time slice. If idle, there seems to be an idle processor. Then a
// goroutine that was ready would have run there, and a yield of less than wakingYield has let none run.
func (f *fruitless) endSlice(start time.Time, idle bool) time.Time {
	if idle {
		return f.yield(start, wakingYield)
	}
	return f.yield(start, fruitlessYield)
}

// count counts a yield that took so long.
func (f *fruitless) count(took, most time.Duration) {
	switch {
	case took > most:
		*f = 0
	case took > fruitlessYield:
		*f = min(*f+1, maxWaking)
	default:
		*f = min(*f+1, maxFruitless)
	}
}
