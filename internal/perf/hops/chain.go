package hops

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ntbnet/ntbnet/internal/perf"
)

// Kinds of chains. A chain of h hops has h+1 processes: a client, h-1 forwarders and a server.
const (
	ours = "sdp"  // a line of nodes
	tcp  = "tcp"  // relays that copy between connections of loopback TCP
	unix = "unix" // and of Unix sockets
	bare = "bare" // a word, or 64 KiB, from memory to memory, with no code of a connection
)

// kinds are all kinds, in the order of the report.
var kinds = []string{ours, tcp, unix, bare}

// Chain is a chain of processes.
type Chain interface {
	// Pass measures a test between the ends of the chain. A bare chain has round trips of one word.
	Pass(ctx context.Context, test perf.Test, size int, d time.Duration) (Passage, error)
	// Calls counts system calls in such a test. That takes time of all processes, so it is
	// apart. The error wraps [ErrNotCounted] if the system does not let them be counted.
	Calls(ctx context.Context, test perf.Test, size int, d time.Duration) (Calls, error)
	// Close ends all processes.
	Close() error
}

// Passage is what a chain did in one round of a test.
type Passage struct {
	// Value is that of [perf.Figures].
	Value float64 `json:"value"`
	// P50 and P99 are of single round trips, in microseconds.
	P50 float64 `json:"p50_us,omitempty"`
	P99 float64 `json:"p99_us,omitempty"`
	// Messages is how many went from end to end while what follows was counted. A round trip
	// is two of them.
	Messages int `json:"messages"`
	// Asleep is how often an end of our connection slept while Value was measured.
	Asleep uint64 `json:"sleeps_of_ends,omitempty"`
	// Forwarders and Ends are what the processes used: all between the ends, and both ends.
	Forwarders Use `json:"forwarders"`
	Ends       Use `json:"ends"`
	// Frames is what nodes count, nil for other processes.
	Frames *Frames `json:"frames,omitempty"`
	// Yields is how often the forwarders of a bare chain called sched_yield.
	Yields uint64 `json:"yields_of_bare_forwarders,omitempty"`
	// Copy is the time of a plain copy of 64 KiB in this round, and Yield the CPU time of one
	// sched_yield, in microseconds.
	Copy  float64 `json:"plain_copy_us"`
	Yield float64 `json:"sched_yield_us"`
	// Turn is the CPU time of a sched_yield in the bare chain of as many hops in this round, in
	// microseconds. There it lets another process run. It is Yield if that chain has not yielded.
	Turn float64 `json:"sched_yield_in_turn_us"`
	// Calls is nil in rounds in which system calls were not counted.
	Calls *Calls `json:"calls,omitempty"`
}

// ErrNotCounted is the error of Calls where the system does not let system calls be counted.
var ErrNotCounted = errors.New("system calls are not counted")

// Calls is how many system calls the processes of a chain made while messages went along.
type Calls struct {
	Messages   int    `json:"messages"`
	Forwarded  uint64 `json:"forwarded,omitempty"` // frames, by nodes
	Forwarders uint64 `json:"forwarders"`
	Ends       uint64 `json:"ends"`
}

// Use is what some processes used.
type Use struct {
	CPU    float64 `json:"cpu_us"`
	Sleeps uint64  `json:"sleeps"` // of threads, those of Go's runtime among them
}

// Frames is what the nodes of a chain counted.
type Frames struct {
	Forwarded uint64 `json:"forwarded"`                    // sent on by forwarders
	Dropped   uint64 `json:"dropped"`                      // by any node
	RungAt    uint64 `json:"doorbells_rung_at_forwarders"` // for frames
	RungBy    uint64 `json:"doorbells_rung_by_forwarders"`
	// What the forwarders' workers of lanes did: were woken by doorbells, rested while other
	// goroutines polled, and offered their processor by sched_yield.
	Wakes  uint64 `json:"wakes_of_forwarders"`
	Rests  uint64 `json:"rests_of_forwarders"`
	Offers uint64 `json:"yields_of_forwarders"`
}

// Since returns the difference to earlier counts.
func (f Frames) Since(before Frames) Frames {
	return Frames{
		Forwarded: f.Forwarded - before.Forwarded, Dropped: f.Dropped - before.Dropped,
		RungAt: f.RungAt - before.RungAt, RungBy: f.RungBy - before.RungBy,
		Wakes: f.Wakes - before.Wakes, Rests: f.Rests - before.Rests, Offers: f.Offers - before.Offers,
	}
}

// ChainRow is what a kind of chain over a number of hops achieves.
type ChainRow struct {
	Hops      int        `json:"hops"`
	Kind      string     `json:"kind"`          // "sdp", "tcp", "unix", "bare"
	RoundTrip *ChainTest `json:"round_trip_us"` // of 64 B, or of a word
	OneWay    *ChainTest `json:"one_way_gbps"`  // with 64 KiB
}

// ChainTest is one test of a kind of chain.
type ChainTest struct {
	perf.Spread           // of the rounds' values
	Rounds      []Passage `json:"each_round"`
	// TimesFasterThan has the ratio to each other kind that was measured. More than 1 means
	// faster.
	TimesFasterThan map[string]perf.Ratio `json:"times_faster_than,omitempty"`
	// CPU, Copies and Sleeps are of a forwarder for each message: CPU time in microseconds and
	// in plain copies of 64 KiB. They are nil where there is no forwarder.
	CPU    *perf.Spread `json:"forwarders_cpu_of_a_message_us,omitempty"`
	Copies *perf.Spread `json:"forwarders_cpu_of_a_message_copies,omitempty"`
	Sleeps *perf.Spread `json:"forwarders_sleeps_of_a_message,omitempty"`
	// Calls are system calls. They are nil where they were not counted, too.
	Calls *perf.Spread `json:"forwarders_calls_of_a_message,omitempty"`
	// Frame is what a forwarder does for each frame that it sends on, nil for processes that
	// are not nodes.
	Frame *Forwarding `json:"forwarders_of_a_frame,omitempty"`
}

// Forwarding is what a node does for each frame that it sends on. Times are in microseconds.
type Forwarding struct {
	Of     perf.Spread `json:"frames_of_a_message"`
	CPU    perf.Spread `json:"cpu_us"`
	Yields perf.Spread `json:"yields"`
	// TimesBare is the CPU time of a message in times of that of a forwarder of the bare chain.
	TimesBare perf.Spread `json:"cpu_of_a_message_times_bare"`
	// Work is the CPU time less that of the yields, each of which takes what one took in the
	// same round. WorkCopies is that for a message, in plain copies of 64 KiB.
	Work       perf.Spread `json:"cpu_less_yields_us"`
	WorkCopies perf.Spread `json:"cpu_less_yields_of_a_message_copies"`
	// WorkInTurn is Work with each yield at [Passage.Turn] instead.
	WorkInTurn perf.Spread  `json:"cpu_less_yields_in_turn_us"`
	Wakes      perf.Spread  `json:"wakes"`
	Rests      perf.Spread  `json:"rests"`
	Sleeps     perf.Spread  `json:"sleeps"`
	RungAt     perf.Spread  `json:"doorbells_rung_at_it"`
	RungBy     perf.Spread  `json:"doorbells_rung_by_it"`
	Calls      *perf.Spread `json:"calls,omitempty"`
}

// work returns the CPU time of all forwarders less that of their yields, at so much for each.
func (p Passage) work(yield float64) float64 {
	return p.Forwarders.CPU - float64(p.Frames.Offers)*yield
}

// forwarding returns what a forwarder did for each frame, of n in a chain of nodes.
func (t *ChainTest) forwarding(n float64) *Forwarding {
	each := func(what func(Passage) float64) perf.Spread {
		return t.spread(func(p Passage) float64 { return what(p) / float64(p.Frames.Forwarded) })
	}
	return &Forwarding{
		Of:         t.spread(func(p Passage) float64 { return float64(p.Frames.Forwarded) / float64(p.Messages) / n }),
		CPU:        each(func(p Passage) float64 { return p.Forwarders.CPU }),
		Yields:     each(func(p Passage) float64 { return float64(p.Frames.Offers) }),
		Work:       each(func(p Passage) float64 { return p.work(p.Yield) }),
		WorkCopies: t.spread(func(p Passage) float64 { return p.work(p.Yield) / float64(p.Messages) / n / p.Copy }),
		WorkInTurn: each(func(p Passage) float64 { return p.work(p.Turn) }),
		Wakes:      each(func(p Passage) float64 { return float64(p.Frames.Wakes) }),
		Rests:      each(func(p Passage) float64 { return float64(p.Frames.Rests) }),
		Sleeps:     each(func(p Passage) float64 { return float64(p.Forwarders.Sleeps) }),
		RungAt:     each(func(p Passage) float64 { return float64(p.Frames.RungAt) }),
		RungBy:     each(func(p Passage) float64 { return float64(p.Frames.RungBy) }),
		Calls:      t.calls(func(c Calls) float64 { return float64(c.Forwarders) / float64(c.Forwarded) }),
	}
}

// calls returns the distribution of a figure over the rounds in which system calls were counted,
// or nil if there are none.
func (t *ChainTest) calls(figure func(Calls) float64) *perf.Spread {
	var list []float64
	for _, p := range t.Rounds {
		if p.Calls != nil {
			list = append(list, figure(*p.Calls))
		}
	}
	if len(list) == 0 {
		return nil
	}
	s := perf.SpreadOf(list)
	return &s
}

// spread returns the distribution over the rounds of a figure of each.
func (t *ChainTest) spread(figure func(Passage) float64) perf.Spread {
	return perf.SpreadOf(t.each(figure))
}

func (t *ChainTest) each(figure func(Passage) float64) (list []float64) {
	for _, p := range t.Rounds {
		list = append(list, figure(p))
	}
	return list
}

func value(p Passage) float64 { return p.Value }

// reduce computes what the report has of each chain over a number of hops.
func reduce(rows []*ChainRow) {
	for _, row := range rows {
		for test, t := range row.tests() {
			t.Spread = t.spread(value)
			if n := float64(row.Hops - 1); n > 0 {
				cpu := t.spread(func(p Passage) float64 { return p.Forwarders.CPU / float64(p.Messages) / n })
				copies := t.spread(func(p Passage) float64 { return p.Forwarders.CPU / float64(p.Messages) / n / p.Copy })
				sleeps := t.spread(func(p Passage) float64 { return float64(p.Forwarders.Sleeps) / float64(p.Messages) / n })
				t.CPU, t.Copies, t.Sleeps = &cpu, &copies, &sleeps
				t.Calls = t.calls(func(c Calls) float64 { return float64(c.Forwarders) / float64(c.Messages) / n })
				if row.Kind == ours {
					t.Frame = t.forwarding(n)
				}
			}
			for _, base := range rows {
				other := base.test(test)
				if base == row {
					continue
				}
				if t.TimesFasterThan == nil {
					t.TimesFasterThan = map[string]perf.Ratio{}
				}
				t.TimesFasterThan[base.Kind] = perf.Compare(t.each(value), other.each(value), test == perf.RoundTrip)
			}
		}
	}
}

// besideBare computes what our forwarders use beside those of the bare chain, in the same rounds.
func besideBare(rows []*ChainRow) {
	own, limit := rows[0], rows[len(rows)-1] // as kinds are
	for test, t := range own.tests() {
		if t.Frame != nil {
			t.Frame.TimesBare = ratios(t, limit.test(test), func(p Passage) float64 { return p.Forwarders.CPU / float64(p.Messages) })
		}
	}
}

// test returns what the chain achieves in a test.
func (r *ChainRow) test(t perf.Test) *ChainTest {
	if t == perf.RoundTrip {
		return r.RoundTrip
	}
	return r.OneWay
}

// tests returns all tests of the chain.
func (r *ChainRow) tests() map[perf.Test]*ChainTest {
	return map[perf.Test]*ChainTest{perf.RoundTrip: r.RoundTrip, perf.OneWay: r.OneWay}
}

// chainSet is the chains over one number of hops that are being measured, and their rows.
type chainSet struct {
	hops int
	all  []Chain // in the order of kinds
	rows []*ChainRow
}

// measureChains starts all chains and adds their rows to the report. They run at the same time,
// and one after the other is used, so that all are measured within each round. loops is for the
// budget.
func (p *Plan) measureChains(ctx context.Context, r *Report, loops int) (err error) {
	var list []*chainSet
	defer func() {
		for _, c := range list {
			for _, one := range c.all {
				err = errors.Join(err, one.Close())
			}
		}
	}()
	for _, hops := range p.Hops {
		c := &chainSet{hops: hops}
		list = append(list, c)
		if err := p.startChains(ctx, c); err != nil {
			return err
		}
	}
	for round := range p.Budget.Rounds(p.Rounds, loops) {
		yield, err := p.Yield()
		if err != nil {
			return err
		}
		r.Yield = append(r.Yield, yield)
		_, plain, err := p.Forward(large, p.workFrames())
		if err != nil {
			return err
		}
		for _, c := range list {
			p.progress("round %d of %d: chains, hops=%d", round+1, p.Rounds, c.hops)
			if err := c.round(ctx, p, round, micros(plain), yield); err != nil {
				return err
			}
			if round >= callRounds || r.NotCounted != "" {
				continue
			}
			p.progress("round %d of %d: system calls of chains, hops=%d", round+1, p.Rounds, c.hops)
			err := c.countCalls(ctx, p)
			if errors.Is(err, ErrNotCounted) {
				r.NotCounted = err.Error()
			} else if err != nil {
				return err
			}
		}
	}
	for _, c := range list {
		reduce(c.rows)
		besideBare(c.rows)
		r.Chains = append(r.Chains, c.rows...)
	}
	return nil
}

func (p *Plan) startChains(ctx context.Context, c *chainSet) error {
	for _, kind := range kinds {
		p.progress("starting: a chain, %s, hops=%d", kind, c.hops)
		one, err := p.StartChain(ctx, kind, c.hops)
		if err != nil {
			return fmt.Errorf("a chain, %s, hops=%d: %w", kind, c.hops, err)
		}
		c.all = append(c.all, one)
		c.rows = append(c.rows, &ChainRow{Hops: c.hops, Kind: kind, RoundTrip: &ChainTest{}, OneWay: &ChainTest{}})
	}
	return nil
}

// tests are the tests of chains.
var tests = []perf.Test{perf.RoundTrip, perf.OneWay}

// sizeOf returns the size of the messages of a test.
func sizeOf(test perf.Test) int {
	if test == perf.OneWay {
		return large
	}
	return small
}

// round measures all tests on every chain. In each round it begins with another one. plain is
// the time of a plain copy, and yield that of a sched_yield.
func (c *chainSet) round(ctx context.Context, p *Plan, round int, plain, yield float64) error {
	turn := yield
	for _, test := range tests {
		for i := range c.all {
			i = (round + i) % len(c.all)
			t := c.rows[i].test(test)
			passage, err := c.all[i].Pass(ctx, test, sizeOf(test), p.Duration)
			if err != nil {
				return fmt.Errorf("a chain, %s, hops=%d: %v: %w", c.rows[i].Kind, c.hops, test, err)
			}
			passage.Copy, passage.Yield = plain, yield
			if test == perf.RoundTrip && passage.Yields > 0 {
				turn = passage.Forwarders.CPU / float64(passage.Yields)
			}
			t.Rounds = append(t.Rounds, passage)
		}
	}
	for _, row := range c.rows {
		for _, t := range row.tests() {
			t.Rounds[round].Turn = turn
		}
	}
	return nil
}

// System calls are counted in the first callRounds rounds, for a part of the time of a figure.
const (
	callRounds = 3
	callPart   = 4
)

// countCalls counts the system calls of every chain that has forwarders, in the last round.
func (c *chainSet) countCalls(ctx context.Context, p *Plan) error {
	if c.hops == 1 {
		return nil
	}
	for _, test := range tests {
		for i := range c.all {
			t := c.rows[i].test(test)
			calls, err := c.all[i].Calls(ctx, test, sizeOf(test), p.Duration/callPart)
			if err != nil {
				return fmt.Errorf("a chain, %s, hops=%d: %v: %w", c.rows[i].Kind, c.hops, test, err)
			}
			t.Rounds[len(t.Rounds)-1].Calls = &calls
		}
	}
	return nil
}
