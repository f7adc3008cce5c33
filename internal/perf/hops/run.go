package hops

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ntbnet/ntbnet/internal/perf"
)

// Run measures the whole plan. An error says what was being measured.
func Run(ctx context.Context, p Plan) (*Report, error) {
	r := &Report{
		Host: perf.ThisHost(), Rounds: p.Rounds,
		SliceMS: float64(p.Duration) / float64(time.Millisecond),
	}
	if err := p.measureWork(r); err != nil {
		return nil, err
	}
	shapes := p.shapes()
	if p.StartChain != nil {
		loops := 1
		if len(shapes) > 0 {
			loops += len(shapes) + len(shareSizes)
		}
		if err := p.measureChains(ctx, r, loops); err != nil {
			return nil, err
		}
	}
	for i, s := range shapes {
		hops := p.hops(s.Nodes)
		if !s.Frames {
			hops = []int{1}
		}
		if err := p.measureShape(ctx, r, s, hops, len(shapes)-i+len(shareSizes)); err != nil {
			return nil, err
		}
	}
	if len(shapes) > 0 {
		if err := p.measureShares(ctx, r); err != nil {
			return nil, err
		}
	}
	r.Cut = p.Budget.Cut()
	return r, nil
}

// shapes returns the rings to measure. Neighbours of the first use stores.
func (p *Plan) shapes() (list []Shape) {
	if len(p.Nodes) == 0 {
		return nil
	}
	if slices.Contains(p.Hops, 1) {
		list = append(list, Shape{Topology: "ring", Nodes: slices.Min(p.Nodes), Lanes: slices.Min(p.Lanes)})
	}
	for _, n := range p.Nodes {
		for _, l := range p.Lanes {
			if len(p.hops(n)) > 0 {
				list = append(list, Shape{Topology: "ring", Nodes: n, Lanes: l, Frames: true})
			}
		}
	}
	return list
}

// workRounds is how often the work of forwarding is measured.
const workRounds = 9

// workFrames returns of how many frames it is measured, 2000 unless figures take less than 25 ms.
func (p *Plan) workFrames() int {
	return int(min(max(p.Duration/(25*time.Millisecond/2000), 50), 2000))
}

// measureWork is called first, while no other process of the run uses processors.
func (p *Plan) measureWork(r *Report) error {
	p.progress("forwarding a frame")
	for _, size := range []int{small, large} {
		var forward, plain []float64
		for range workRounds {
			f, c, err := p.Forward(size, p.workFrames())
			if err != nil {
				return err
			}
			forward, plain = append(forward, micros(f)), append(plain, micros(c))
		}
		r.Work = append(r.Work, Work{size, perf.SpreadOf(forward), perf.SpreadOf(plain)})
	}
	return nil
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// measureShape starts a ring and adds its rows to the report. loops is for the budget.
func (p *Plan) measureShape(ctx context.Context, r *Report, s Shape, hops []int, loops int) (err error) {
	p.progress("starting: %v", s)
	ring, err := p.Start(ctx, s)
	if err != nil {
		return fmt.Errorf("%v: %w", s, err)
	}
	defer func() {
		if closeErr := ring.Close(); err == nil {
			err = closeErr
		}
	}()
	all := make([]samples, len(hops))
	for round := range p.Budget.Rounds(p.Rounds, loops) {
		for i, h := range hops {
			p.progress("round %d of %d: %v, hops=%d", round+1, p.Rounds, s, h)
			if err := p.round(ctx, ring, s, h, &all[i]); err != nil {
				return fmt.Errorf("%v, hops=%d: %w", s, h, err)
			}
		}
	}
	for i, h := range hops {
		r.Rows = append(r.Rows, all[i].row(s, h))
	}
	return nil
}

// samples are the figures of a row, one of each for a round.
type samples struct {
	p50, p99, rate, frame, data   []float64
	allP50, allP99, all, slowests []float64
}

func (p *Plan) round(ctx context.Context, ring Ring, s Shape, hops int, to *samples) error {
	for _, test := range []perf.Test{perf.RoundTrip, perf.OneWay} {
		var tasks []Task
		for from := 1; from <= s.Nodes; from++ {
			t := Task{From: from, To: (from+hops-1)%s.Nodes + 1, Test: test, Size: small, Duration: p.Duration}
			if test == perf.OneWay {
				t.Size = large
			}
			tasks = append(tasks, t)
		}
		before, err := ring.Usage(ctx)
		if err != nil {
			return err
		}
		alone, err := ring.Measure(ctx, tasks[0])
		if err != nil {
			return err
		}
		after, err := ring.Usage(ctx)
		if err != nil {
			return err
		}
		together, err := ring.Measure(ctx, tasks...)
		if err != nil {
			return err
		}
		var used Usage
		if hops > 1 { // the few frames from the end of another test do not count
			used = forwarders(before, after, tasks[0])
		}
		to.add(test, alone[0], used, together)
	}
	return nil
}

// forwarders returns the usage of all nodes that forwarded in a task.
func forwarders(before, after []Usage, t Task) (sum Usage) {
	for node := range after {
		u := after[node].Since(before[node])
		if node != t.From && node != t.To && u.ForwardedFrames > 0 {
			sum.CPU += u.CPU
			sum.ForwardedFrames += u.ForwardedFrames
			sum.ForwardedBytes += u.ForwardedBytes
		}
	}
	return sum
}

func (s *samples) add(test perf.Test, alone Outcome, used Usage, together []Outcome) {
	cpu := micros(used.CPU)
	if test == perf.RoundTrip {
		s.p50, s.p99 = append(s.p50, alone.P50), append(s.p99, alone.P99)
		if used.ForwardedFrames > 0 {
			s.frame = append(s.frame, cpu/float64(used.ForwardedFrames))
		}
		var p50, p99 []float64
		for _, o := range together {
			p50, p99 = append(p50, o.P50), append(p99, o.P99)
		}
		s.allP50, s.allP99 = append(s.allP50, perf.SpreadOf(p50).Median), append(s.allP99, slices.Max(p99))
		return
	}
	s.rate = append(s.rate, alone.Value)
	if used.ForwardedBytes > 0 {
		s.data = append(s.data, cpu/float64(used.ForwardedBytes)*large)
	}
	sum, least := 0.0, together[0].Value
	for _, o := range together {
		sum += o.Value
		least = min(least, o.Value)
	}
	s.all = append(s.all, sum)
	s.slowests = append(s.slowests, least*float64(len(together))/sum)
}

func (s *samples) row(shape Shape, hops int) Row {
	return Row{
		Nodes: shape.Nodes, Lanes: shape.Lanes, Hops: hops, Frames: shape.Frames,
		Alone:    Pair{P50: median(s.p50), P99: median(s.p99), Throughput: median(s.rate), Frame: median(s.frame), Data: median(s.data)},
		Together: All{P50: median(s.allP50), P99: median(s.allP99), Throughput: median(s.all), Slowest: median(s.slowests)},
	}
}

// median returns 0 if there are no values.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	return perf.SpreadOf(values).Median
}
