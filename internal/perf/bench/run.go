package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ntbnet/ntbnet/internal/perf"
	"github.com/ntbnet/ntbnet/internal/perf/limits"
)

// Plan is what Run does.
type Plan struct {
	// Transports are measured. The others are compared with the first.
	Transports []Transport
	// Items selects rows. None means all.
	Items []string
	// Rounds is at least 1. Duration is that of one measurement. The warm-up takes
	// a sixth of it on top.
	Rounds   int
	Duration time.Duration
	// Window is that of the shares of connections that work at the same time, a second
	// if 0. As many are measured as Duration has, at least one.
	Window time.Duration
	// Budget, if not nil, limits the time of Run by leaving rounds out.
	Budget *perf.Budget
	// SweepRounds and SweepDuration are for the picture. Without rounds there is no
	// picture.
	SweepRounds   int
	SweepDuration time.Duration
	// VerifyBytes are sent each way on every Network before the measurement.
	VerifyBytes uint64
	// Limits measures the machine, if not nil. NoLimits says why it is nil, for the report.
	Limits   *limits.Meter
	Effort   limits.Effort
	NoLimits string
	// Load keeps all processors busy until stop is called. If it is nil, the rows
	// that need it are left out.
	Load func(context.Context) (stop func() error, err error)
	// Idle measures idle connections in processes of their own. If it is nil, their
	// rows are left out.
	Idle func(ctx context.Context, network string) (*IdleReport, error)
	// Progress, if not nil, is called with a description of what begins.
	Progress func(what string)
}

// cell is one transport in one measurement.
type cell struct {
	rounds []Outcome
	failed error // once it has failed it is not tried again
}

// run is a Run that is under way.
type run struct {
	Plan
	table    []measurement
	cells    [][]cell // by measurement and transport
	limits   *Limits
	fast     []limits.Copies // the fastest of the full measurement, to be measured again
	done, of int             // steps, for the progress
}

// Run measures and reports. If it returns an error, there is no report. The failure
// of a single measurement is part of the report.
func Run(ctx context.Context, p Plan) (*Report, error) {
	r := &run{Plan: p}
	for _, m := range measurements() {
		if r.wants(m.item) && (!m.busy || p.Load != nil) {
			r.table = append(r.table, m)
			r.cells = append(r.cells, make([]cell, len(p.Transports)))
		}
	}
	r.of = p.Rounds * len(r.table) * len(p.Transports)
	report := &Report{Host: perf.ThisHost(), Rounds: p.Rounds, SliceMS: float64(p.Duration) / float64(time.Millisecond)}
	var err error
	if report.Verified, err = r.verify(ctx); err != nil {
		return nil, err
	}
	if err := r.measureLimits(ctx); err != nil {
		return nil, err
	}
	loops := 1 + min(p.SweepRounds, 1) // half of the time is for the picture
	report.Rounds = 0
	for round := range p.Budget.Rounds(p.Rounds, loops) {
		if err := r.round(ctx, round); err != nil {
			return nil, err
		}
		report.Rounds++
	}
	report.Limits, report.NoLimits = r.limits, r.NoLimits
	for i, m := range r.table {
		report.Rows = append(report.Rows, r.rows(m, r.cells[i])...)
	}
	if p.Idle != nil && r.wants("idle") {
		rows, err := r.idle(ctx)
		if err != nil {
			return nil, err
		}
		report.Rows = append(report.Rows, rows...)
	}
	report.Sweep, err = r.sweep(ctx)
	report.Cut = p.Budget.Cut()
	return report, err
}

func (r *run) wants(item string) bool {
	return len(r.Items) == 0 || slices.Contains(r.Items, item)
}

func (r *run) progress(format string, args ...any) {
	if r.Progress != nil {
		r.Progress(fmt.Sprintf(format, args...))
	}
}

func (r *run) verify(ctx context.Context) (perf.Verified, error) {
	v := perf.Verified{BytesEachWay: r.VerifyBytes}
	for _, t := range r.Transports {
		n, ok := t.(*Network)
		if !ok {
			continue // it is a worker's, not ours
		}
		r.progress("verifying: %s", n.Name())
		if err := n.Verify(ctx, r.VerifyBytes); err != nil {
			return v, fmt.Errorf("%s: verifying: %w", n.Name(), err)
		}
		v.Transports = append(v.Transports, n.Name())
	}
	return v, nil
}

// fastest is how many sizes of queue and piece are measured again in each round, by each kind of stores.
const fastest = 4

func (r *run) measureLimits(ctx context.Context) error {
	if r.Limits == nil {
		return nil
	}
	r.progress("measuring the limits")
	full, err := r.Limits.Measure(r.Effort, r.Budget, 4) // a quarter of the time
	if err != nil {
		return cause(ctx, err)
	}
	r.fast = full.Fastest(fastest)
	r.limits = &Limits{Line: full.Line.Best, Filled: full.Filled.Best, Double: full.Double.Best, Copies: full.Best}
	return nil
}

// limitsAgain measures the limits in a round. The best of all rounds counts.
func (r *run) limitsAgain() error {
	l := r.limits
	for _, line := range []struct {
		message limits.Message
		best    *float64
		rounds  *[]float64
	}{{limits.Word, &l.Line, &l.LineRounds}, {limits.FilledLine, &l.Filled, &l.FilledRounds}, {limits.TwoLines, &l.Double, &l.DoubleRounds}} {
		us, err := r.Limits.CacheLine(line.message, r.Effort.Rounds)
		if err != nil {
			return err
		}
		*line.best, *line.rounds = min(*line.best, us), append(*line.rounds, us)
	}
	copied := 0.
	for _, c := range r.fast {
		var err error
		if c.GBs, err = r.Limits.Copies(c.Queue, c.Piece, r.Effort.Bytes, c.Streamed); err != nil {
			return err
		}
		copied = max(copied, c.GBs)
		if c.GBs > l.Copies.GBs {
			l.Copies = c
		}
	}
	l.CopiesRounds = append(l.CopiesRounds, copied)
	return nil
}

func (r *run) round(ctx context.Context, round int) error {
	if r.Limits != nil {
		if err := r.limitsAgain(); err != nil {
			return cause(ctx, err)
		}
	}
	for i, m := range r.table {
		if err := r.measurement(ctx, round, m, r.cells[i]); err != nil {
			return err
		}
	}
	return nil
}

// measurement measures one row on every transport. In each round it begins with
// another one.
func (r *run) measurement(ctx context.Context, round int, m measurement, cells []cell) (err error) {
	if m.busy {
		stop, loadErr := r.Load(ctx)
		if loadErr != nil {
			return loadErr
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	task := r.task(m)
	for k := range r.Transports {
		i := (round + k) % len(r.Transports)
		t, c := r.Transports[i], &cells[i]
		r.progress("%d %%, round %d of %d: %s: %s", 100*r.done/r.of, round+1, r.Rounds, m.rows[0].name, t.Name())
		r.done++
		if c.failed != nil {
			continue
		}
		o, err := t.Measure(ctx, task, r.Duration)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		c.rounds, c.failed = append(c.rounds, o), err
	}
	return nil
}

// task returns the task of a row.
func (r *run) task(m measurement) Task {
	t := m.task
	if m.fair {
		window := r.Window
		if window == 0 {
			window = time.Second
		}
		t.Windows, t.WindowMS = max(int(r.Duration/window), 1), float64(window)/float64(time.Millisecond)
	}
	return t
}

// cause returns why ctx has ended if it has, else err.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// Point is a size in bytes and the median for it.
type Point struct {
	Size  int     `json:"size_bytes"`
	Value float64 `json:"value"`
}

// Curve is one transport in the picture.
type Curve struct {
	Transport string  `json:"transport"`
	RoundTrip []Point `json:"round_trip_us"`
	OneWay    []Point `json:"one_way_gb_per_s"`
}

// sweep measures every size on every transport. A size that fails leaves a gap.
func (r *run) sweep(ctx context.Context) ([]Curve, error) {
	if r.SweepRounds == 0 {
		return nil, nil
	}
	curves := make([]Curve, len(r.Transports))
	for i, t := range r.Transports {
		curves[i].Transport = t.Name()
	}
	sizes, tests := sweepSizes(), []Test{RoundTrip, OneWay}
	loops := len(sizes) * len(tests)
	for _, size := range sizes {
		for _, test := range tests {
			m := measurement{task: Task{Test: test, Size: size, Connections: 1},
				rows: []figure{{name: fmt.Sprintf("picture: %s, %s", test, perf.SizeText(size))}}}
			cells := make([]cell, len(r.Transports))
			if err := r.sweepOne(ctx, m, cells, loops); err != nil {
				return nil, err
			}
			loops--
			for i := range cells {
				if cells[i].failed != nil {
					continue
				}
				p := Point{size, perf.SpreadOf(cells[i].values(value)).Median}
				if test == RoundTrip {
					curves[i].RoundTrip = append(curves[i].RoundTrip, p)
				} else {
					curves[i].OneWay = append(curves[i].OneWay, p)
				}
			}
		}
	}
	return curves, nil
}

func (r *run) sweepOne(ctx context.Context, m measurement, cells []cell, loops int) error {
	short := *r
	short.Duration, short.Rounds = r.SweepDuration, r.SweepRounds
	short.done, short.of = 0, r.SweepRounds*len(r.Transports)
	for round := range r.Budget.Rounds(r.SweepRounds, loops) {
		if err := short.measurement(ctx, round, m, cells); err != nil {
			return err
		}
	}
	return nil
}

// values returns one figure of each round.
func (c *cell) values(of func(Outcome) float64) (list []float64) {
	for _, o := range c.rounds {
		list = append(list, of(o))
	}
	return list
}
