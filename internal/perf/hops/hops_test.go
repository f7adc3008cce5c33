package hops

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ntbnet/ntbnet/internal/perf"
)

// madeUp is a ring whose round trips take 10 µs for each hop, halved by a second
// lane, and where each node that forwards uses 3 µs for a frame.
type madeUp struct {
	shape  Shape
	mu     sync.Mutex
	usage  []Usage // guarded by mu
	idle   int     // that many pairs of Usage find that node 2 of a line has sent nothing; guarded by mu
	closed *int
	err    error
}

func (m *madeUp) Measure(_ context.Context, tasks ...Task) ([]Outcome, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]Outcome, len(tasks))
	for i, t := range tasks {
		hops := (t.To - t.From + m.shape.Nodes) % m.shape.Nodes
		out[i] = Outcome{Value: 4 / float64(hops), P50: 10 * float64(hops) / float64(m.shape.Lanes), P99: 100}
		for h := 1; h < hops; h++ {
			u := &m.usage[(t.From+h-1)%m.shape.Nodes+1]
			u.CPU += 300 * time.Microsecond
			u.ForwardedFrames += 100
			u.ForwardedBytes += 100 * large
		}
	}
	if m.shape.Topology == "line" && m.idle == 0 {
		m.usage[2].OwnBytes += 600
		m.usage[2].ForwardedBytes += 400
	}
	return out, m.err
}

func (m *madeUp) Usage(context.Context) ([]Usage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.idle > 0 {
		m.idle--
	} else if m.shape.Topology == "line" {
		m.usage[2].OwnBytes += 6_000_000
		m.usage[2].ForwardedBytes += 4_000_000
	}
	return append([]Usage(nil), m.usage...), nil
}

func (m *madeUp) Close() error { *m.closed++; return nil }

func plan(started, closed *int, err error) Plan {
	return Plan{
		Nodes: []int{3, 4, 8}, Hops: []int{1, 2, 4}, Lanes: []int{1, 2}, Rounds: 3, Duration: time.Millisecond,
		Start: func(_ context.Context, s Shape) (Ring, error) {
			*started++
			return &madeUp{shape: s, usage: make([]Usage, s.Nodes+1), closed: closed, err: err}, nil
		},
		Forward: func(size, n int) (time.Duration, time.Duration, error) {
			return 3 * time.Microsecond, 2 * time.Microsecond, nil
		},
	}
}

func TestAReportOfAMadeUpRing(t *testing.T) {
	var started, closed int
	r, err := Run(context.Background(), plan(&started, &closed, nil))
	require.NoError(t, err)
	assert.Equal(t, started, closed)
	// The rows are stores, and then one hop of 3 nodes, two of 4, and one, two and four of
	// 8, with 1 lane and 2.
	require.Len(t, r.Rows, 1+2*(1+2+3))
	assert.False(t, r.Rows[0].Frames)
	four, ok := r.find(8, 1, 4)
	require.True(t, ok)
	assert.Equal(t, Pair{P50: 40, P99: 100, Throughput: 1, Frame: 3, Data: 3}, four.Alone)
	assert.Equal(t, All{P50: 40, P99: 100, Throughput: 8, Slowest: 1}, four.Together)
	one, _ := r.find(8, 2, 1)
	assert.Zero(t, one.Alone.Frame)
	for _, s := range r.Shares {
		assert.InDelta(t, 0.6, s.Own.Median, 0.01)
	}

	var b strings.Builder
	require.NoError(t, r.Table(&b))
	for _, want := range []string{"stores", "lanes 1 -> 2", "-38..45 %", "-50 % (-50..-50)", "60 %", "40 %", "1.50"} {
		assert.Contains(t, b.String(), want)
	}
	for _, line := range strings.Split(b.String(), "\n") {
		assert.LessOrEqual(t, utf8.RuneCountInString(line), 120)
	}
	_, err = json.Marshal(r)
	require.NoError(t, err)
}

// A node that sent nothing in the middle of its time, since it got no processor, is tried for
// longer.
func TestAShareIsMeasuredWhenSomethingWasSent(t *testing.T) {
	var started, closed int
	p := plan(&started, &closed, nil)
	start := p.Start
	p.Start = func(ctx context.Context, s Shape) (Ring, error) {
		ring, err := start(ctx, s)
		if s.Topology == "line" {
			ring.(*madeUp).idle = 4
		}
		return ring, err
	}
	r, err := Run(context.Background(), p)
	require.NoError(t, err)
	_, err = json.Marshal(r)
	require.NoError(t, err)
	for _, s := range r.Shares {
		assert.InDelta(t, 0.6, s.Own.Median, 0.01)
	}
}

func TestAFailureNamesWhatWasMeasured(t *testing.T) {
	var started, closed int
	why := errors.New("no luck")
	_, err := Run(context.Background(), plan(&started, &closed, why))
	require.ErrorIs(t, err, why)
	assert.Contains(t, err.Error(), "ring, nodes=3, lanes=1, hops=1")
	assert.Equal(t, 1, closed)
}

func TestForwardersAreThoseBetween(t *testing.T) {
	after := []Usage{{}, {CPU: 1, ForwardedFrames: 1}, {CPU: 2, ForwardedFrames: 5, ForwardedBytes: 7}, {CPU: 4}, {CPU: 8, ForwardedFrames: 1}}
	got := forwarders(make([]Usage, 5), after, Task{From: 1, To: 4, Test: perf.OneWay})
	assert.Equal(t, Usage{CPU: 2, ForwardedFrames: 5, ForwardedBytes: 7}, got)
}
