package perf

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Times are found again to 3 %, in ascending buckets.
func TestBucketsOfTimes(t *testing.T) {
	last := -1
	for d := time.Duration(0); d >= 0 && d < 1<<62; d += 1 + d/50 {
		b := bucketOf(d)
		require.Less(t, b, buckets, d)
		require.GreaterOrEqual(t, b, last, d)
		require.InDelta(t, float64(d), float64(middle(b)), float64(d)/32, d)
		last = b
	}
	assert.Equal(t, 0, bucketOf(-1))
	assert.Less(t, bucketOf(1<<63-1), buckets)
}

func TestPercentilesOfAHistogram(t *testing.T) {
	var a, b histogram
	assert.Zero(t, a.percentile(50))
	for range 98 {
		a[bucketOf(10*time.Microsecond)]++
	}
	for range 2 {
		b[bucketOf(time.Millisecond)]++
	}
	a.add(&b)
	for p, want := range map[float64]time.Duration{50: 10 * time.Microsecond, 98: 10 * time.Microsecond, 99: time.Millisecond, 100: time.Millisecond} {
		assert.InEpsilon(t, float64(want), float64(a.percentile(p)), 1./32, p)
	}
}

func TestFairnessIsThatOfEachWindow(t *testing.T) {
	var f Fairness
	all := []share{{counts: []int{10, 30, 0}}, {counts: []int{30, 10, 0}}, {counts: []int{20, 5, 0}}}
	all[0].times[bucketOf(time.Microsecond)]++
	f.combine(all, 500*time.Millisecond)
	assert.Equal(t, []float64{0.5, 1. / 3, 0}, f.Slowest)
	assert.Equal(t, 70., f.Sum)
	assert.InEpsilon(t, 1, f.P50, 1./32)

	s := share{counts: make([]int, 2)}
	for at, n := range map[time.Duration]int{0: 1, time.Second - 1: 2, time.Second: 4, 2*time.Second - 1: 8, 2 * time.Second: 16} {
		s.count(at, time.Second, n)
	}
	assert.Equal(t, []int{3, 12}, s.counts, "what ends after the last window does not count")
}

// Every round trip is counted, those that are not timed among them.
func TestFairnessOfConnections(t *testing.T) {
	leavesNothing(t)
	var n atomic.Int64
	g, err := Connect(context.Background(), serve(t, nil, "unix")[0], 3, 4096, func(ctx context.Context, e Endpoint) (net.Conn, error) {
		c, err := dialNet(ctx, e)
		return counted{c, &n}, err
	})
	require.NoError(t, err)
	defer g.Close()
	n.Store(0)
	f, err := g.Fairness(context.Background(), 4096, 20*time.Millisecond, 3)
	require.NoError(t, err)
	require.Len(t, f.Slowest, 3)
	for _, s := range f.Slowest {
		assert.True(t, s >= 0 && s <= 1, s)
	}
	assert.Positive(t, f.Sum)
	assert.Positive(t, f.P50)
	assert.GreaterOrEqual(t, f.P99, f.P50)
	batches := (n.Load() - int64(f.Messages)*4096) / commandSize
	assert.Zero(t, (n.Load()-int64(f.Messages)*4096)%commandSize)
	assert.True(t, batches > 0 && batches <= int64(f.Messages))
	assert.LessOrEqual(t, f.Sum*0.06, float64(f.Messages)+0.5)
	// The connections can be used again.
	_, err = g.Slice(context.Background(), RoundTrip, 4096, time.Millisecond)
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(20*time.Millisecond, cancel)
	_, err = g.Fairness(ctx, 64, time.Minute, 1)
	assert.ErrorIs(t, err, context.Canceled)
}
