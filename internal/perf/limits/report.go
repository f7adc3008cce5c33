package limits

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/ntbnet/ntbnet/internal/perf"
)

// Effort sets how long Measure takes.
type Effort struct {
	Runs   int           // of every figure; the best counts
	Rounds int           // round trips in one run
	Bytes  int           // through the queue in one run
	Chain  time.Duration // of round trips along one chain in one run, and of a stream
}

// Full takes about 7 seconds.
var Full = Effort{Runs: 5, Rounds: 50_000, Bytes: 256 << 20, Chain: 50 * time.Millisecond}

// Quick is for tests of programs that print the figures.
var Quick = Effort{Runs: 2, Rounds: 500, Bytes: 256 << 10, Chain: time.Millisecond}

// Queues and Pieces are the sizes in bytes that Measure tries, each with each
// unless the piece is the larger one.
var (
	Queues = powers(64<<10, 8<<20)
	Pieces = powers(4<<10, 256<<10)
)

func powers(from, to int) (list []int) {
	for n := from; n <= to; n *= 2 {
		list = append(list, n)
	}
	return list
}

// Report is what the machine allows.
type Report struct {
	Host perf.Host `json:"host"`
	Runs int       `json:"runs"`
	Cut  string    `json:"cut,omitempty"` // what was left out for lack of time
	// Line is the time of a word to and fro, Filled that of a line with 56 bytes of
	// payload, and Double that of two lines with 64. All are the best of the runs, in
	// microseconds for a round trip.
	Line   Figure `json:"cache_line_us"`
	Filled Figure `json:"filled_line_us"`
	Double Figure `json:"two_lines_us"`
	// Yield is the CPU time of one sched_yield, in microseconds, while no chain works.
	Yield Figure `json:"sched_yield_us"`
	// Chains are what chains of processes allow.
	Chains []ChainFigure `json:"chains,omitempty"`
	// Best is the fastest of Copies, which are in order of queue and piece.
	Best   Copies   `json:"best_two_copies"`
	Copies []Copies `json:"two_copies"`
}

// Figure is one limit, and the runs of which it is the best.
type Figure struct {
	Best float64   `json:"best"`
	Runs []float64 `json:"runs"`
}

// add adds a run, of which the lowest is the best.
func (f *Figure) add(v float64) {
	f.Runs = append(f.Runs, v)
	f.Best = slices.Min(f.Runs)
}

// ChainFigure is the time of a word along a chain of processes and back, in microseconds, and the
// throughput of pieces of 64 KiB along it.
type ChainFigure struct {
	Hops int `json:"hops"` // the chain has one process more
	Figure
	Stream Figure `json:"gb_per_s"` // 10^9 bytes; the highest is the best
}

// add adds a run.
func (f *ChainFigure) add(us, gbs float64) {
	f.Figure.add(us)
	f.Stream.Runs = append(f.Stream.Runs, gbs)
	f.Stream.Best = slices.Max(f.Stream.Runs)
}

// Copies is the throughput with one size of queue and piece.
type Copies struct {
	Queue    int     `json:"queue_bytes"`
	Piece    int     `json:"piece_bytes"`
	Streamed bool    `json:"non_temporal,omitempty"` // the first copy is made by non-temporal stores
	GBs      float64 `json:"gb_per_s"`               // 10^9 bytes, the best of the runs
}

// String returns the sizes, and how the first copy is made if that is not the ordinary way.
func (c Copies) String() string {
	s := fmt.Sprintf("%s in pieces of %s", perf.SizeText(c.Queue), perf.SizeText(c.Piece))
	if c.Streamed {
		s += ", non-temporal"
	}
	return s
}

// streamedPiece is the size of the pieces that Measure tries with non-temporal stores.
const streamedPiece = 64 << 10

// Measure returns the best of several runs of everything. The runs of one figure are
// spread over the whole time, so that a disturbance does not affect all of them. Runs
// are the rounds of the budget, which may be nil. loops is the number of its loops to
// come, this one included. The chains are measured beside it, if there are any.
func (m *Meter) Measure(e Effort, budget *perf.Budget, loops int, chains ...*Chain) (*Report, error) {
	r := &Report{Host: perf.ThisHost()}
	for _, c := range chains {
		r.Chains = append(r.Chains, ChainFigure{Hops: c.last})
	}
	for _, q := range Queues {
		for _, p := range Pieces {
			if p <= q {
				r.Copies = append(r.Copies, Copies{Queue: q, Piece: p})
			}
		}
	}
	if m.m.out.Streams() {
		for _, q := range Queues {
			r.Copies = append(r.Copies, Copies{Queue: q, Piece: streamedPiece, Streamed: true})
		}
	}
	for range budget.Rounds(e.Runs, loops) {
		if err := m.measureOnce(r, e); err != nil {
			return nil, err
		}
		v, err := Yield()
		if err != nil {
			return nil, err
		}
		r.Yield.add(v)
		for i, c := range chains {
			us, _, err := c.RoundTrips(e.Chain)
			if err != nil {
				return nil, err
			}
			gbs, _, err := c.Stream(e.Chain)
			if err != nil {
				return nil, err
			}
			r.Chains[i].add(us, gbs)
		}
		r.Runs++
	}
	r.Cut = budget.Cut()
	r.Best = slices.MaxFunc(r.Copies, slower)
	return r, nil
}

func (m *Meter) measureOnce(r *Report, e Effort) error {
	for _, line := range []struct {
		figure  *Figure
		message Message
	}{{&r.Line, Word}, {&r.Filled, FilledLine}, {&r.Double, TwoLines}} {
		v, err := m.CacheLine(line.message, e.Rounds)
		if err != nil {
			return err
		}
		line.figure.add(v)
	}
	for i := range r.Copies {
		c := &r.Copies[i]
		v, err := m.Copies(c.Queue, c.Piece, e.Bytes, c.Streamed)
		if err != nil {
			return err
		}
		c.GBs = max(c.GBs, v)
	}
	return nil
}

func slower(a, b Copies) int {
	switch {
	case a.GBs < b.GBs:
		return -1
	case a.GBs > b.GBs:
		return 1
	}
	return 0
}

// Fastest returns the n sizes with the highest throughput, the fastest first, of each kind of
// stores: which kind is faster may change while a virtual machine runs.
func (r *Report) Fastest(n int) (list []Copies) {
	for _, streamed := range []bool{false, true} {
		kind := slices.Clone(r.Copies)
		kind = slices.DeleteFunc(kind, func(c Copies) bool { return c.Streamed != streamed })
		slices.SortStableFunc(kind, func(a, b Copies) int { return slower(b, a) })
		list = append(list, kind[:min(n, len(kind))]...)
	}
	return list
}

// Table writes the report as plain text.
func (r *Report) Table(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\nbest of %d runs, no code of a connection\n\n", r.Host, r.Runs)
	rows := [][]string{
		{"limit between two processes", "", "best", "each run"},
		{"one cache line to and fro", "a word", perf.Number(r.Line.Best) + " µs", texts(r.Line.Runs)},
		{"", "a word and 56 B", perf.Number(r.Filled.Best) + " µs", texts(r.Filled.Runs)},
		{"two cache lines to and fro", "a word and 64 B", perf.Number(r.Double.Best) + " µs", texts(r.Double.Runs)},
		{"two copies through a queue", r.Best.String(), perf.Number(r.Best.GBs) + " GB/s", ""},
	}
	chains := func(what, unit string, of func(ChainFigure) Figure) {
		for _, c := range r.Chains {
			f := of(c)
			rows = append(rows, []string{what, fmt.Sprintf("%d hops, %d processes", c.Hops, c.Hops+1), perf.Number(f.Best) + unit, texts(f.Runs)})
			what = ""
		}
	}
	chains("one word along a chain and back", " µs", func(c ChainFigure) Figure { return c.Figure })
	chains("64 KiB along it, each copies", " GB/s", func(c ChainFigure) Figure { return c.Stream })
	rows = append(rows, []string{"one sched_yield", "CPU time", perf.Number(r.Yield.Best) + " µs", texts(r.Yield.Runs)})
	perf.WriteAligned(&b, rows)
	if len(r.Chains) > 0 {
		b.WriteString("\nThe processes of a chain poll and yield, and sleep when nothing has come for a while.\n")
	}
	b.WriteString("\nTwo copies, GB/s (10^9 bytes), by size of the queue and of a piece:\n\n")
	perf.WriteAligned(&b, r.grid())
	perf.WriteCut(&b, r.Cut)
	_, err := io.WriteString(w, b.String())
	return err
}

func texts(values []float64) string {
	var list []string
	for _, v := range values {
		list = append(list, perf.Number(v))
	}
	return strings.Join(list, " ")
}

// grid returns a row for each queue and a column for each piece, and one for non-temporal stores.
func (r *Report) grid() [][]string {
	top := []string{"queue", ""}
	for _, p := range Pieces {
		top = append(top, perf.SizeText(p))
	}
	rows := [][]string{append(top, perf.SizeText(streamedPiece)+", non-temporal")}
	for _, q := range Queues {
		row := []string{perf.SizeText(q), ""}
		for _, p := range Pieces {
			row = append(row, r.cell(q, p, false))
		}
		rows = append(rows, append(row, r.cell(q, streamedPiece, true)))
	}
	return rows
}

// cell returns the throughput of one size, or a dash if it was not measured.
func (r *Report) cell(queue, piece int, streamed bool) string {
	for _, c := range r.Copies {
		if c.Queue == queue && c.Piece == piece && c.Streamed == streamed {
			return perf.Number(c.GBs)
		}
	}
	return "-"
}
