package perf

import (
	"slices"
	"time"
)

// baselines are the transports that the others are compared with.
var baselines = []string{"tcp", "unix"}

// Report is the outcome of Run. It is printed by Table or as JSON.
type Report struct {
	Host        Host         `json:"host"`
	Rounds      int          `json:"rounds"`
	Cut         string       `json:"cut,omitempty"` // what was left out for lack of time
	SliceMS     float64      `json:"slice_ms"`      // one test on one transport in one round
	Connections int          `json:"connections"`
	Verified    Verified     `json:"verified"`
	Tests       []TestReport `json:"tests"`
}

// Verified says what the pass before the measurement has checked. On each of the
// transports every byte in both directions was right.
type Verified struct {
	BytesEachWay uint64   `json:"bytes_each_way"`
	Transports   []string `json:"transports"`
}

// TestReport has the results of one test, in the order of the plan's targets.
type TestReport struct {
	Test    string   `json:"test"` // "round trip" or "one way"
	Size    int      `json:"size_bytes"`
	Unit    string   `json:"unit"` // of all figures but the ratios: "us" or "GB/s" (10^9 bytes)
	Results []Result `json:"results"`
}

// Result is one transport in one test.
type Result struct {
	Transport string `json:"transport"`
	Spread
	Rounds []float64 `json:"each_round"`
	// P50 and P99 are of single round trips over all rounds. They are nil for one
	// way.
	P50 *float64 `json:"p50,omitempty"`
	P99 *float64 `json:"p99,omitempty"`
	// TimesFasterThan has the ratio to each other baseline that was measured. More
	// than 1 means faster.
	TimesFasterThan map[string]Ratio `json:"times_faster_than,omitempty"`
}

// Ratio compares a transport with another.
type Ratio struct {
	Spread // of the ratios computed within each round
	// AgainstBest compares the median with the other's best round. It is the
	// cautious figure where the other's rounds are far apart.
	AgainstBest float64 `json:"against_best_round"`
}

// series collects one transport in one test while the rounds go on.
type series struct {
	transport string
	rounds    []float64
	samples   []time.Duration
}

func (s *series) result(t Test, all []*series) Result {
	r := Result{Transport: s.transport, Spread: SpreadOf(s.rounds), Rounds: s.rounds}
	if len(s.samples) > 0 {
		slices.Sort(s.samples)
		p50, p99 := micros(percentile(s.samples, 50)), micros(percentile(s.samples, 99))
		r.P50, r.P99 = &p50, &p99
	}
	for _, base := range all {
		if base == s || !slices.Contains(baselines, base.transport) {
			continue
		}
		if r.TimesFasterThan == nil {
			r.TimesFasterThan = make(map[string]Ratio)
		}
		r.TimesFasterThan[base.transport] = timesFaster(t, s.rounds, base.rounds)
	}
	return r
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
