package perf

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// clock is a clock that a test sets.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func TestABudgetLeavesRoundsOut(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		name   string
		limit  time.Duration
		rounds []time.Duration // how long each round would take
		done   int
		cut    string
	}{
		{"all fit", 10 * s, []time.Duration{3 * s, 3 * s, 4 * s}, 3, ""},
		{"the last does not", 9 * s, []time.Duration{3 * s, 3 * s, 3 * s, 1 * s}, 3, "3 of 4 rounds: the time of 9 s was used up"},
		{"the longest counts", 10 * s, []time.Duration{6 * s, 1 * s, 1 * s}, 1, "1 of 3 rounds: the time of 10 s was used up"},
		{"one is done in any case", s / 2, []time.Duration{60 * s, s}, 1, "1 of 2 rounds: the time of 0.5 s was used up"},
		{"one of one", s, []time.Duration{60 * s}, 1, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &clock{time.Unix(1000, 0)}
			b := newBudget(tt.limit, c.now)
			done := 0
			for i := range b.Rounds(len(tt.rounds), 1) {
				assert.Equal(t, done, i)
				c.at = c.at.Add(tt.rounds[i])
				done++
			}
			assert.Equal(t, tt.done, done)
			assert.Equal(t, tt.cut, b.Cut())
		})
	}
}

// Each of three loops gets a third of what is left when it begins.
func TestLoopsShareABudget(t *testing.T) {
	c := &clock{time.Unix(1000, 0)}
	b := newBudget(30*time.Second, c.now)
	var done []int
	for loop, each := range []time.Duration{5, 10, 1} {
		n := 0
		for range b.Rounds(5, 3-loop) {
			c.at = c.at.Add(each * time.Second)
			n++
		}
		done = append(done, n)
	}
	// 10 s of 30, 10 of 20, 10 of 10.
	assert.Equal(t, []int{2, 1, 5}, done)
	assert.Equal(t, "8 of 15 rounds: the time of 30 s was used up", b.Cut())
}

func TestWithoutABudgetAllRoundsAreDone(t *testing.T) {
	var b *Budget
	n := 0
	for range b.Rounds(3, 1) {
		n++
	}
	assert.Equal(t, 3, n)
	assert.Empty(t, b.Cut())
}
