package perf

import (
	"fmt"
	"iter"
	"time"
)

// Budget limits the time of a run that measures in rounds, by leaving rounds out.
// It belongs to one goroutine. A nil Budget has no limit.
type Budget struct {
	limit         time.Duration
	now           func() time.Time
	begun         time.Time
	done, planned int // rounds
}

// NewBudget returns a budget of a time from now on.
func NewBudget(limit time.Duration) *Budget { return newBudget(limit, time.Now) }

func newBudget(limit time.Duration, now func() time.Time) *Budget {
	return &Budget{limit: limit, now: now, begun: now()}
}

// Rounds yields the numbers of the rounds of a loop, 0 to n-1. loops is the number
// of loops to come, this one included. This loop gets an equal part of the time
// that is left. The first round always runs. A further one begins only if there is
// time for it, assuming that it takes as long as the longest so far.
func (b *Budget) Rounds(n, loops int) iter.Seq[int] {
	return func(yield func(int) bool) {
		if b == nil {
			for i := range n {
				if !yield(i) {
					return
				}
			}
			return
		}
		b.planned += n
		start := b.now()
		end := start.Add((b.limit - start.Sub(b.begun)) / time.Duration(loops))
		var longest time.Duration
		for i, at := 0, start; i < n; i++ {
			if i > 0 && at.Add(longest).After(end) {
				return
			}
			if !yield(i) {
				return
			}
			b.done++
			next := b.now()
			longest, at = max(longest, next.Sub(at)), next
		}
	}
}

// Cut returns what was left out, such as "2 of 9 rounds: the time of 60 s was used
// up". If nothing was, it returns "".
func (b *Budget) Cut() string {
	if b == nil || b.done == b.planned {
		return ""
	}
	return fmt.Sprintf("%d of %s: the time of %g s was used up", b.done, plural(b.planned, "round"), b.limit.Seconds())
}
