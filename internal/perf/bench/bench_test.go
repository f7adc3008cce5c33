package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ntbnet/ntbnet/internal/leak"
	"github.com/ntbnet/ntbnet/internal/perf"
	"github.com/ntbnet/ntbnet/internal/perf/limits"
)

func dial(ctx context.Context, e perf.Endpoint) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, e.Network, e.Address)
}

type server interface {
	Serve(net.Listener) error
	Close()
}

// serve has a server listen on network.
func serve(t *testing.T, srv server, network string) perf.Endpoint {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "s")
	}
	ln, err := net.Listen(network, address)
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	t.Cleanup(func() {
		srv.Close()
		assert.NoError(t, <-served)
	})
	return perf.Endpoint{Network: network, Address: ln.Addr().String()}
}

func network(t *testing.T, name string) *Network {
	t.Helper()
	return &Network{
		Commands: serve(t, perf.NewServer(), name),
		Bytes:    serve(t, perf.NewByteServer(), name),
		HTTP:     serve(t, NewHTTPServer(), name),
		Dial:     dial,
	}
}

// checkLeaks must be called first, after the poller's own descriptors are open.
func checkLeaks(t *testing.T) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ln.Close()
	leak.Check(t)
}

// fake returns its values in turn, or fails.
type fake struct {
	name   string
	values []float64
	err    error
	asked  []Task
}

func (f *fake) Name() string { return f.name }
func (f *fake) Close() error { return nil }
func (f *fake) Measure(_ context.Context, t Task, _ time.Duration) (Outcome, error) {
	f.asked = append(f.asked, t)
	if f.err != nil {
		return Outcome{}, f.err
	}
	v := f.values[len(f.asked)%len(f.values)]
	return Outcome{Value: v, Rate: v, Slowest: 0.5}, nil
}

func TestEveryTaskOfTheTableHasAFigure(t *testing.T) {
	checkLeaks(t)
	ctx := context.Background()
	for _, name := range []string{"tcp", "unix"} {
		n := network(t, name)
		for _, m := range measurements() {
			r := &run{Plan: Plan{Duration: 2 * time.Millisecond, Window: 2 * time.Millisecond}}
			o, err := n.Measure(ctx, r.task(m), 2*time.Millisecond)
			require.NoError(t, err, m.rows[0].name)
			for _, f := range m.rows {
				if m.fair && f.unit == "%" { // one of 64 may not have had a turn in so short a time
					assert.GreaterOrEqual(t, f.of(o), 0.0, f.name)
				} else {
					assert.Positive(t, f.of(o), f.name)
				}
			}
		}
		require.NoError(t, n.Verify(ctx, 1<<16))
		_, err := n.Measure(ctx, Task{Test: "frob"}, time.Millisecond)
		assert.ErrorIs(t, err, ErrUnsupported)
		require.NoError(t, n.Close())
	}
}

func TestAMeasurementEndsWithItsContext(t *testing.T) {
	checkLeaks(t)
	n := network(t, "tcp")
	enough := errors.New("enough")
	for _, task := range []Task{
		{Test: OneWay, Size: 64, Connections: 2}, {Test: Dialing}, {Test: Get, Size: 10, Connections: 2},
	} {
		ctx, cancel := context.WithCancelCause(context.Background())
		time.AfterFunc(20*time.Millisecond, func() { cancel(enough) })
		_, err := n.Measure(ctx, task, time.Minute)
		assert.ErrorIs(t, err, enough, "%s", task.Test)
	}
}

func TestAServerThatIsSilentDoesNotHoldTheMeasurement(t *testing.T) {
	checkLeaks(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0") // nothing accepts
	require.NoError(t, err)
	defer ln.Close()
	at := perf.Endpoint{Network: "tcp", Address: ln.Addr().String()}
	n := &Network{Commands: at, Bytes: at, HTTP: at, Dial: dial}
	for _, test := range []Test{RoundTrip, Dialing, Get} {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		_, err := n.Measure(ctx, Task{Test: test, Size: 1, Connections: 1}, time.Millisecond)
		assert.ErrorIs(t, err, context.DeadlineExceeded, "%s", test)
		cancel()
	}
}

// Shares are of windows of a second, as many as the time has, whatever the time of other rows is.
func TestWindowsOfShares(t *testing.T) {
	m := measurement{fair: true, task: Task{Test: RoundTrip, Size: 64, Connections: 2}}
	for _, c := range []struct {
		d, window time.Duration
		windows   int
		ms        float64
	}{{300 * time.Millisecond, 0, 1, 1000}, {3500 * time.Millisecond, 0, 3, 1000}, {5 * time.Millisecond, 5 * time.Millisecond, 1, 5}} {
		got := (&run{Plan: Plan{Duration: c.d, Window: c.window}}).task(m)
		assert.Equal(t, Task{Test: RoundTrip, Size: 64, Connections: 2, Windows: c.windows, WindowMS: c.ms}, got)
	}
	m.fair = false
	assert.Equal(t, m.task, (&run{}).task(m))

	checkLeaks(t)
	n := network(t, "unix")
	o, err := n.Measure(context.Background(), Task{Test: RoundTrip, Size: 64, Connections: 2, Windows: 3, WindowMS: 10}, time.Millisecond)
	require.NoError(t, err)
	assert.InEpsilon(t, 2e6/o.Rate, o.Value, 1e-9)
	assert.True(t, o.Slowest >= 0 && o.Slowest <= 1)
	assert.True(t, o.P50 > 0 && o.P99 >= o.P50)
	o, err = n.Measure(context.Background(), Task{Test: RoundTrip, Size: 64, Connections: 2, Windows: 1, WindowMS: 1e-6}, time.Millisecond)
	require.NoError(t, err)
	assert.Positive(t, o.Rate, "nothing comes back within a nanosecond")
	_, err = n.Measure(context.Background(), Task{Test: OneWay, Size: 64, Connections: 2, Windows: 3, WindowMS: 10}, time.Millisecond)
	assert.ErrorIs(t, err, ErrUnsupported)
}

func TestAnHTTPServerThatSendsAnotherBodyFails(t *testing.T) {
	n := network(t, "tcp")
	_, err := n.Measure(context.Background(), Task{Test: Get, Size: perf.MaxSize + 1, Connections: 3}, time.Millisecond)
	assert.ErrorContains(t, err, "http: status 404")
}

func TestOnlyTheItemsAskedFor(t *testing.T) {
	a := &fake{name: "a", values: []float64{1}}
	r, err := Run(context.Background(), Plan{Transports: []Transport{a}, Items: []string{"stream", "connect"}, Rounds: 2})
	require.NoError(t, err)
	assert.Equal(t, []string{"stream", "connect"}, []string{r.Rows[0].Item, r.Rows[1].Item})
	assert.Len(t, r.Rows, 2)
	assert.Len(t, a.asked, 4)

	assert.Empty(t, CheckItems([]string{"stream", "idle"}))
	assert.Equal(t, "frob", CheckItems([]string{"stream", "frob"}))
	for _, m := range measurements() {
		assert.Contains(t, Items, m.item)
	}
	names := map[string]bool{}
	for _, m := range measurements() {
		for _, f := range m.rows {
			assert.False(t, names[f.name], "%s is there twice", f.name)
			names[f.name] = true
		}
	}
}

func TestRoundsAreInterleaved(t *testing.T) {
	var steps []string
	_, err := Run(context.Background(), Plan{
		Transports: []Transport{&fake{name: "a", values: []float64{1}}, &fake{name: "b", values: []float64{1}}},
		Items:      []string{"stream", "connect"}, Rounds: 2,
		Progress: func(s string) { steps = append(steps, s) },
	})
	require.NoError(t, err)
	var order []string
	for _, s := range steps {
		order = append(order, s[strings.LastIndex(s, " ")+1:])
	}
	assert.Equal(t, []string{"a", "b", "a", "b", "b", "a", "b", "a"}, order)
	assert.Equal(t, "0 %, round 1 of 2: stream of 64 B writes: a", steps[0])
	assert.Equal(t, "87 %, round 2 of 2: connect, 1 B to and fro, close: a", steps[7])
}

func TestProcessorsAreBusyForThoseRowsOnly(t *testing.T) {
	running, started := 0, 0
	var during []int
	a := &fake{name: "a", values: []float64{1}}
	_, err := Run(context.Background(), Plan{
		Transports: []Transport{a}, Items: []string{"stream", "busy"}, Rounds: 1,
		Load: func(context.Context) (func() error, error) {
			running++
			started++
			return func() error { running--; return nil }, nil
		},
		Progress: func(string) { during = append(during, running) },
	})
	require.NoError(t, err)
	assert.Equal(t, []int{0, 1, 1}, during)
	assert.Equal(t, 2, started)
	assert.Zero(t, running)

	broken := errors.New("broken")
	_, err = Run(context.Background(), Plan{
		Transports: []Transport{a}, Items: []string{"busy"}, Rounds: 1,
		Load: func(context.Context) (func() error, error) { return func() error { return broken }, nil },
	})
	assert.ErrorIs(t, err, broken, "a load that was none")
}

func TestAFailureIsReportedAndNotTriedAgain(t *testing.T) {
	good := &fake{name: "good", values: []float64{2}}
	bad := &fake{name: "bad", err: errors.New("broken\npipe")}
	without := &fake{name: "without", err: ErrUnsupported}
	why := &fake{name: "why", err: errors.Join(ErrUnsupported)}
	why.err = &wrapped{ErrUnsupported, ErrUnsupported.Error() + ": no switch"}
	r, err := Run(context.Background(), Plan{
		Transports: []Transport{good, bad, without, why}, Items: []string{"stream"}, Rounds: 3,
	})
	require.NoError(t, err)
	assert.Len(t, bad.asked, 1)
	assert.Len(t, good.asked, 3)
	assert.Equal(t, []string{"bad: stream of 64 B writes: broken\npipe"}, r.Failures([]string{"good", "bad", "without", "why"}))
	assert.Empty(t, r.Failures([]string{"good"}))
	var b bytes.Buffer
	require.NoError(t, r.Table(&b))
	assert.Contains(t, b.String(), "stream of 64 B writes: bad: broken pipe\n")
	assert.Contains(t, b.String(), "stream of 64 B writes: why: no switch\n")
	assert.NotContains(t, b.String(), "without:")
	for _, res := range r.Rows[0].Results[1:] {
		assert.Nil(t, res.Rounds, res.Transport)
		assert.Nil(t, res.TimesBetterThan)
	}
}

type wrapped struct {
	error
	text string
}

func (w *wrapped) Error() string { return w.text }
func (w *wrapped) Unwrap() error { return w.error }

func TestSharesAndRatios(t *testing.T) {
	limit := 4.0
	row := Row{Limit: &limit, LessIsBetter: true, Results: []Result{
		{Transport: "a", Rounds: []float64{8, 80, 8}, Spread: perf.SpreadOf([]float64{8, 80, 8})},
		{Transport: "b", Rounds: []float64{16, 160, 24}, Spread: perf.SpreadOf([]float64{16, 160, 24})},
		{Transport: "none"},
	}}
	row.compare()
	assert.Equal(t, 0.5, *row.Results[0].OfLimit)
	assert.Equal(t, perf.Ratio{Spread: perf.Spread{Median: 2, Min: 2, Max: 3}, AgainstBest: 2}, row.Results[0].TimesBetterThan["b"])
	assert.Equal(t, 0.5, row.Results[1].TimesBetterThan["a"].Median)
	assert.Nil(t, row.Results[2].OfLimit)
	assert.NotContains(t, row.Results[0].TimesBetterThan, "none")
	assert.Equal(t, []string{"", "", "4.00", "+4.00", "2.00x (2.00..3.00)", "-"}, row.ratios())

	row.LessIsBetter = false
	row.compare()
	assert.Equal(t, 2.0, *row.Results[0].OfLimit)
	assert.Equal(t, "200 %", row.ratios()[3])

	row.Results[1].Min = 0
	row.Results[0].TimesBetterThan = nil
	row.compare()
	assert.NotContains(t, row.Results[0].TimesBetterThan, "b", "nothing is not a number of times anything")
}

// A figure as a part of the limit is made within each round, and left out without limits.
func TestPartsOfTheLimitAreThoseOfEachRound(t *testing.T) {
	m := ofRound(oneWay("oneway", 64<<10, "", copyLimit))
	r := &run{Plan: Plan{Transports: []Transport{&fake{name: "a"}}}, limits: &Limits{Copies: limits.Copies{GBs: 40}, CopiesRounds: []float64{40, 10, 20}}}
	rows := r.rows(m, []cell{{rounds: []Outcome{{Value: 20}, {Value: 8}, {Value: 15}}}})
	require.Len(t, rows, 2)
	assert.Equal(t, []float64{20, 8, 15}, rows[0].Results[0].Rounds)
	assert.Equal(t, 40.0, *rows[0].Limit)
	assert.Equal(t, []float64{50, 80, 75}, rows[1].Results[0].Rounds)
	assert.Nil(t, rows[1].Limit)
	assert.Equal(t, "%", rows[1].Unit)

	r.limits = nil
	assert.Len(t, r.rows(m, []cell{{rounds: []Outcome{{Value: 20}}}}), 1)
}

func TestUnsteadyFiguresAreSaidToBe(t *testing.T) {
	r, err := Run(context.Background(), Plan{
		Transports: []Transport{&fake{name: "a", values: []float64{9e6}}, &fake{name: "b", values: []float64{1e6, 3e6}}},
		Items:      []string{"stream"}, Rounds: 2,
	})
	require.NoError(t, err)
	var b bytes.Buffer
	require.NoError(t, r.Table(&b))
	assert.Contains(t, b.String(), "Unsteady: stream of 64 B writes, b: the rounds differ 3.00x. Against its best round a has 3.00x.")
}

func TestReportAsJSONAndPicture(t *testing.T) {
	r := &Report{
		Limits: &Limits{Line: 0.3, Copies: limits.Copies{GBs: 20}},
		Sweep: []Curve{{"a", []Point{{4, 0.5}, {1 << 20, 90}}, []Point{{4, 0.1}, {1 << 20, 15}}},
			{"b", []Point{{4, 9}}, []Point{{4, 0.01}}}},
	}
	b, err := json.Marshal(r)
	require.NoError(t, err)
	again := new(Report)
	require.NoError(t, json.Unmarshal(b, again))
	assert.Equal(t, r, again)

	var svg bytes.Buffer
	require.NoError(t, r.Picture(&svg))
	for _, s := range []string{"Round trip", "One way", "one cache line", "two copies", ">a<", ">b<"} {
		assert.Contains(t, svg.String(), s)
	}
}

func TestTheSweepHasEverySizeThatDidNotFail(t *testing.T) {
	a := &fake{name: "a", values: []float64{3, 5, 4}}
	bad := &fake{name: "bad", err: errors.New("broken")}
	r, err := Run(context.Background(), Plan{
		Transports: []Transport{a, bad}, Items: []string{"connect"}, Rounds: 1, SweepRounds: 3,
	})
	require.NoError(t, err)
	require.Len(t, r.Sweep, 2)
	sizes := sweepSizes()
	assert.Equal(t, 4<<20, slices.Max(sizes))
	require.Len(t, r.Sweep[0].RoundTrip, len(sizes))
	require.Len(t, r.Sweep[0].OneWay, len(sizes))
	for i, p := range r.Sweep[0].OneWay {
		assert.Equal(t, Point{sizes[i], 4}, p)
	}
	assert.Empty(t, r.Sweep[1].RoundTrip)
}

func TestIdleRowsAreMeasuredOnceForEachNetwork(t *testing.T) {
	n := network(t, "unix")
	var asked []string
	r, err := Run(context.Background(), Plan{
		Transports: []Transport{n, &fake{name: "worker"}}, Items: []string{"idle"}, Rounds: 5,
		Idle: func(_ context.Context, network string) (*IdleReport, error) {
			asked = append(asked, network)
			return &IdleReport{Connections: 7, CPU: 0.25, Memory: 12}, nil
		},
	})
	require.NoError(t, err)
	assert.Equal(t, []string{"unix"}, asked)
	require.Len(t, r.Rows, 2)
	assert.Equal(t, []float64{0.25}, r.Rows[0].Results[0].Rounds)
	assert.Equal(t, []float64{12}, r.Rows[1].Results[0].Rounds)
	assert.Equal(t, "idle connections, 7: CPU", r.Rows[0].Name)
}
