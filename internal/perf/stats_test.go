package perf

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   Spread
	}{
		{[]float64{7}, Spread{7, 7, 7}},
		{[]float64{4, 1}, Spread{2.5, 1, 4}},
		{[]float64{9, 1, 5}, Spread{5, 1, 9}},
		{[]float64{8, 2, 4, 6}, Spread{5, 2, 8}},
	} {
		before := append([]float64(nil), c.values...)
		assert.Equal(t, c.want, SpreadOf(c.values), "%v", c.values)
		assert.Equal(t, before, c.values, "the rounds keep their order")
	}
}

func TestPercentileIsTheNearestRank(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i + 1)
	}
	for _, c := range []struct {
		sorted []time.Duration
		p      float64
		want   time.Duration
	}{
		{hundred, 50, 50},
		{hundred, 99, 99},
		{hundred, 100, 100},
		{hundred, 0.1, 1},
		{hundred[:3], 50, 2},
		{hundred[:1], 99, 1},
	} {
		assert.Equal(t, c.want, percentile(c.sorted, c.p), "%d samples, p%v", len(c.sorted), c.p)
	}
}

func TestRatiosAreMadeWithinEachRound(t *testing.T) {
	// The second round is disturbed: everything takes ten times as long.
	own, base := []float64{1, 10, 2}, []float64{4, 40, 6}
	assert.Equal(t, Ratio{Spread{4, 3, 4}, 2}, timesFaster(RoundTrip, own, base),
		"round trip: less is better")
	assert.Equal(t, Ratio{Spread{0.25, 0.25, 1. / 3}, 0.05}, timesFaster(OneWay, own, base),
		"one way: more is better")
}

func TestNextBatch(t *testing.T) {
	for _, c := range []struct {
		name         string
		n            int
		took, target time.Duration
		want         int
	}{
		{"on target", 100, 10, 10, 100},
		{"too slow", 100, 40, 10, 25},
		{"a little fast", 100, 5, 10, 200},
		{"much too fast grows by eight", 100, 1, 1000, 800},
		{"the clock did not move", 100, 0, 10, 800},
		{"never none", 1, 1000, 1, 1},
		{"never more than a server takes", maxBatch, 1, 1000, maxBatch},
	} {
		assert.Equal(t, c.want, nextBatch(c.n, c.took, c.target), c.name)
	}
}

func TestPacerFillsTheTimeWithAFewBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const each = 100 * time.Microsecond
		var p pacer
		var batches []int
		done, took, err := p.run(10*time.Millisecond, func(n int) error {
			batches = append(batches, n)
			time.Sleep(time.Duration(n) * each)
			return nil
		})
		require.NoError(t, err)
		// A batch should take 2.5 ms.
		assert.Equal(t, []int{1, 8, 25, 25, 25, 25}, batches)
		assert.Equal(t, 109, done)
		assert.Equal(t, 109*each, took)
	})
}

func TestPacerStopsAtAnError(t *testing.T) {
	var p pacer
	broken := errors.New("broken")
	calls := 0
	_, _, err := p.run(time.Hour, func(int) error { calls++; return broken })
	assert.ErrorIs(t, err, broken)
	assert.Equal(t, 1, calls)
}
