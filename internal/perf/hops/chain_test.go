package hops

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ntbnet/ntbnet/internal/perf"
)

// madeUpChain takes as many µs for each hop as its kind says, in odd rounds twice as many. Each
// forwarder uses 3 µs for a message.
type madeUpChain struct {
	kind   string
	hops   int
	log    *[]string // the kinds of all chains, in the order of their passes
	count  map[perf.Test]int
	closed *int
	err    error
	calls  error
}

var micro = map[string]float64{ours: 20, tcp: 10, unix: 40, bare: 1}

func (c *madeUpChain) Pass(_ context.Context, test perf.Test, size int, d time.Duration) (Passage, error) {
	*c.log = append(*c.log, c.kind)
	round := c.count[test]
	c.count[test]++
	v := micro[c.kind] * float64(c.hops) * float64(1+round%2)
	if test == perf.OneWay {
		v = 1 / v
	}
	n := float64(c.hops - 1)
	p := Passage{Value: v, Messages: 100, Forwarders: Use{CPU: 300 * n, Sleeps: uint64(50 * n)}, Ends: Use{CPU: 200}}
	if c.kind == ours {
		p.Frames = &Frames{
			Forwarded: uint64(200 * n), RungAt: uint64(100 * n), RungBy: uint64(150 * n),
			Wakes: uint64(20 * n), Rests: uint64(10 * n), Offers: uint64(400 * n),
		}
		p.Asleep = uint64(round)
	}
	if c.kind == bare {
		p.Yields = uint64(600 * n)
	}
	return p, c.err
}

func (c *madeUpChain) Calls(_ context.Context, test perf.Test, size int, d time.Duration) (Calls, error) {
	if d != time.Millisecond/callPart {
		return Calls{}, errors.New("another time")
	}
	n := uint64(c.hops - 1)
	calls := Calls{Messages: 100, Forwarders: 500 * n, Ends: 7}
	if c.kind == ours {
		calls.Forwarded = 200 * n
	}
	return calls, c.calls
}

func (c *madeUpChain) Close() error { *c.closed++; return nil }

func chainPlan(log *[]string, closed *int, err error) Plan {
	return Plan{
		Hops: []int{1, 2, 4}, Lanes: []int{1}, Rounds: 3, Duration: time.Millisecond,
		StartChain: func(_ context.Context, kind string, hops int) (Chain, error) {
			return &madeUpChain{kind: kind, hops: hops, log: log, count: map[perf.Test]int{}, closed: closed, err: err}, nil
		},
		Yield: func() (float64, error) { return 0.25, nil },
		Forward: func(int, int) (time.Duration, time.Duration, error) {
			return 3 * time.Microsecond, 2 * time.Microsecond, nil
		},
	}
}

func TestAReportOfMadeUpChains(t *testing.T) {
	var log []string
	closed := 0
	r, err := Run(context.Background(), chainPlan(&log, &closed, nil))
	require.NoError(t, err)
	assert.Equal(t, 12, closed)
	assert.Empty(t, r.Rows)
	require.Len(t, r.Chains, 12)
	// Each round begins with another chain.
	assert.Equal(t, []string{ours, tcp, unix, bare, ours, tcp, unix, bare}, log[:8])
	assert.Equal(t, []string{tcp, unix, bare, ours, tcp, unix, bare, ours}, log[24:32])

	own := r.chain(4, ours)
	assert.Equal(t, perf.Spread{Median: 80, Min: 80, Max: 160}, own.RoundTrip.Spread)
	assert.Equal(t, perf.Spread{Median: 3, Min: 3, Max: 3}, *own.RoundTrip.CPU)
	assert.Equal(t, perf.Spread{Median: 1.5, Min: 1.5, Max: 1.5}, *own.OneWay.Copies)
	assert.Equal(t, perf.Spread{Median: 0.5, Min: 0.5, Max: 0.5}, *own.OneWay.Sleeps)
	assert.Equal(t, perf.Spread{Median: 0.5, Min: 0.5, Max: 0.5}, own.RoundTrip.TimesFasterThan[tcp].Spread)
	assert.Equal(t, perf.Spread{Median: 2, Min: 2, Max: 2}, own.OneWay.TimesFasterThan[unix].Spread)
	assert.Equal(t, perf.Spread{Median: 0.05, Min: 0.05, Max: 0.05}, own.OneWay.TimesFasterThan[bare].Spread)
	assert.Nil(t, r.chain(1, ours).RoundTrip.CPU)

	var b strings.Builder
	require.NoError(t, r.Table(&b))
	table := r.chainFigures()
	require.Len(t, table, 1+2+8+8)
	assert.Equal(t, []string{"4", "64 B, to and fro", "µs", "80.0 (80.0..160)", "40.0 (40.0..80.0)", "160 (160..320)", "4.00 (4.00..8.00)"}, table[11])
	assert.Equal(t, []string{"4", "CPU of 64 KiB", "copies", "1.50 (1.50..1.50)", "1.50 (1.50..1.50)", "1.50 (1.50..1.50)", "1.50 (1.50..1.50)"}, table[14])
	assert.Equal(t, []string{"4", "calls of 64 B", "", "5.00 (5.00..5.00)", "5.00 (5.00..5.00)", "5.00 (5.00..5.00)", "5.00 (5.00..5.00)"}, table[17])
	ratios := r.chainRatios()
	require.Len(t, ratios, 1+6)
	assert.Equal(t, []string{"4", "64 B, to and fro", "0.50x (0.50..0.50)", "2.00x (2.00..2.00)", "20.0 (20.0..20.0)"}, ratios[5])
	assert.Equal(t, []string{"4", "64 KiB, one way", "0.50x (0.50..0.50)", "2.00x (2.00..2.00)", "20.0 (20.0..20.0)"}, ratios[6])
	assert.Equal(t, [][]string{
		{"hops", "chain", "GB/s", "CPU, times"},
		{"4", "sdp", "50 % (50 %..50 %)", "2.20 (2.20..2.20)"}, {"4", "bare", "50 % (50 %..50 %)", "2.20 (2.20..2.20)"},
	}, r.besideTwo())
	frames := r.forwarded()
	// Of 1.5 µs for a frame, two yields at 0.25 µs leave 1 µs: of 64 KiB two frames, and so one
	// copy of 2 µs. In the bare chain a yield takes 0.5 µs.
	same := func(hops, name, cell string) []string { return []string{hops, name, cell, cell} }
	assert.Equal(t, [][]string{
		same("4", "frames of a message", "2.00 (2.00..2.00)"), same("4", "CPU, µs", "1.50 (1.50..1.50)"),
		same("4", "yields", "2.00 (2.00..2.00)"), same("4", "CPU less yields, µs", "1.00 (1.00..1.00)"),
		same("4", "less those in turn, µs", "0.50 (0.50..0.50)"),
		{"4", "that of 64 KiB, copies", "-", "1.00 (1.00..1.00)"},
		same("4", "CPU of a message, times bare's", "1.00 (1.00..1.00)"),
		same("4", "wake-ups", "0.10 (0.10..0.10)"), same("4", "rests", "0.05 (0.05..0.05)"),
		same("4", "sleeps of threads", "0.25 (0.25..0.25)"), same("4", "system calls", "2.50 (2.50..2.50)"),
		same("4", "doorbells rung at it", "0.50 (0.50..0.50)"), same("4", "doorbells rung by it", "0.75 (0.75..0.75)"),
		same("4", "dropped in a round, most", "0"),
	}, frames[15:])
	for _, want := range []string{
		"One plain copy takes 2.00 µs, and one sched_yield 0.25 µs of CPU time.",
		"In 1 of 3 rounds of 64 B neither end slept;\nthe median of these is 20.0 µs.",
		"lets another process run:\n0.50 µs over 2, 0.50 µs over 4.",
	} {
		assert.Contains(t, b.String(), want)
	}
	for _, line := range strings.Split(b.String(), "\n") {
		assert.LessOrEqual(t, utf8.RuneCountInString(line), 120)
	}
	_, err = json.Marshal(r)
	require.NoError(t, err)
}

// Where the system does not let system calls be counted, the report says why, and has the rest.
func TestSystemCallsThatAreNotCounted(t *testing.T) {
	var log []string
	closed := 0
	p := chainPlan(&log, &closed, nil)
	start := p.StartChain
	p.StartChain = func(ctx context.Context, kind string, hops int) (Chain, error) {
		c, err := start(ctx, kind, hops)
		c.(*madeUpChain).calls = fmt.Errorf("%w: no right", ErrNotCounted)
		return c, err
	}
	r, err := Run(context.Background(), p)
	require.NoError(t, err)
	assert.Equal(t, "a chain, sdp, hops=2: round trip: system calls are not counted: no right", r.NotCounted)
	own := r.chain(4, ours).RoundTrip
	assert.Len(t, own.Rounds, 3)
	assert.Nil(t, own.Calls)
	assert.Nil(t, own.Frame.Calls)
	assert.Equal(t, 1.0, own.Frame.Work.Median)
	assert.Contains(t, r.forwarded(), []string{"4", "system calls", "-", "-"})
	var b strings.Builder
	require.NoError(t, r.Table(&b))
	assert.Contains(t, b.String(), "no right.\n")

	broken := errors.New("broken")
	p.StartChain = func(ctx context.Context, kind string, hops int) (Chain, error) {
		c, err := start(ctx, kind, hops)
		c.(*madeUpChain).calls = broken
		return c, err
	}
	_, err = Run(context.Background(), p)
	require.ErrorIs(t, err, broken)
}

// Where there is time for one round only, all chains have one.
func TestChainsAndRingsShareTheTime(t *testing.T) {
	var log []string
	started, closed, chains := 0, 0, 0
	p := plan(&started, &closed, nil)
	c := chainPlan(&log, &chains, nil)
	p.StartChain, p.Yield, p.Budget = c.StartChain, c.Yield, perf.NewBudget(time.Nanosecond)
	r, err := Run(context.Background(), p)
	require.NoError(t, err)
	assert.Equal(t, started, closed)
	assert.Equal(t, 12, chains)
	for _, row := range r.Chains {
		assert.Len(t, row.RoundTrip.Rounds, 1)
	}
	assert.Contains(t, r.Cut, "11 of 33 rounds") // chains, seven rings, three shares
	assert.NotEmpty(t, r.Rows)
}

func TestAFailureNamesTheChain(t *testing.T) {
	var log []string
	closed := 0
	why := errors.New("no luck")
	_, err := Run(context.Background(), chainPlan(&log, &closed, why))
	require.ErrorIs(t, err, why)
	assert.Contains(t, err.Error(), "a chain, sdp, hops=1: round trip")
	assert.Equal(t, 12, closed)

	p := chainPlan(&log, &closed, nil)
	start := p.StartChain
	p.StartChain = func(ctx context.Context, kind string, hops int) (Chain, error) {
		if kind == unix && hops == 2 {
			return nil, why
		}
		return start(ctx, kind, hops)
	}
	closed = 0
	_, err = Run(context.Background(), p)
	require.ErrorIs(t, err, why)
	assert.Contains(t, err.Error(), "a chain, unix, hops=2")
	assert.Equal(t, 6, closed)
}
