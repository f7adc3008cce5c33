package wait

import (
	"math"
	"runtime"
	"sync/atomic"

	"github.com/ntbnet/ntbnet/internal/virtual"
)

// spinning counts the goroutines that spin, whatever they wait for, so that they leave
// processors to those that work.
var spinning atomic.Int32

// giving counts those of them that give way to Spinners, against which they do not count: the
// waits that offer their processor.
var giving atomic.Int32

// turning counts the waits beyond the limit, which poll by turns.
var turning atomic.Int32

// idle reports whether there seems to be an idle processor: fewer goroutines poll than may run at the same
// time. others is how many are to be added that do not count.
func idle(others int32) bool {
	return spinning.Load()+turning.Load()+others < int32(runtime.GOMAXPROCS(0))
}

// limit returns how many goroutines may spin at the same time. On one processor that is none, unless
// what they wait for comes from elsewhere: only then can it come while they spin.
func limit(elsewhere bool) int32 {
	if virtual.Poll != nil {
		return math.MaxInt32
	}
	if runtime.NumCPU() == 1 && !elsewhere {
		return 0
	}
	return int32(runtime.GOMAXPROCS(0)+1) / 2
}

// enter reports whether one more goroutine may spin. If so, it must leave.
func enter() bool {
	if spinning.Add(1) > limit(false) {
		spinning.Add(-1)
		return false
	}
	return true
}

// enterBesides is enter for a Spinner.
func enterBesides(elsewhere bool) bool {
	if spinning.Add(1)-giving.Load() > limit(elsewhere) {
		spinning.Add(-1)
		return false
	}
	return true
}

func leave() { spinning.Add(-1) }
