package bench

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/ntbnet/ntbnet/internal/perf"
	"github.com/ntbnet/ntbnet/internal/perf/limits"
)

// Report is the result of Run.
type Report struct {
	Host     perf.Host     `json:"host"`
	Rounds   int           `json:"rounds"`
	Cut      string        `json:"cut,omitempty"` // what was left out for lack of time
	SliceMS  float64       `json:"slice_ms"`      // one measurement
	Verified perf.Verified `json:"verified"`
	Limits   *Limits       `json:"limits,omitempty"`
	NoLimits string        `json:"no_limits,omitempty"` // why there are none
	Rows     []Row         `json:"rows"`
	Sweep    []Curve       `json:"sweep,omitempty"`
}

// Limits are the best measured limits, and those of each round.
type Limits struct {
	Line         float64       `json:"cache_line_us"`
	LineRounds   []float64     `json:"cache_line_us_each_round"`
	Filled       float64       `json:"filled_line_us"`
	FilledRounds []float64     `json:"filled_line_us_each_round"`
	Double       float64       `json:"two_lines_us"`
	DoubleRounds []float64     `json:"two_lines_us_each_round"`
	Copies       limits.Copies `json:"two_copies"`
	CopiesRounds []float64     `json:"two_copies_gb_per_s_each_round"`
}

// Row is one line of the table.
type Row struct {
	Item         string   `json:"item"`
	Name         string   `json:"name"`
	Unit         string   `json:"unit"`
	LessIsBetter bool     `json:"less_is_better,omitempty"`
	Limit        *float64 `json:"limit,omitempty"`
	Results      []Result `json:"results"`
}

// Result is one transport in one row. Without rounds there is no figure. Then Why
// says why, unless the transport does not offer the test.
type Result struct {
	Transport string `json:"transport"`
	perf.Spread
	Rounds []float64 `json:"each_round"`
	Why    string    `json:"why,omitempty"`
	Failed bool      `json:"failed,omitempty"`
	// OfLimit is the median as a fraction of the limit.
	OfLimit *float64 `json:"of_limit,omitempty"`
	// TimesBetterThan has the ratio to each other transport.
	TimesBetterThan map[string]perf.Ratio `json:"times_better_than,omitempty"`
}

// rows returns the rows of one measurement.
func (r *run) rows(m measurement, cells []cell) (rows []Row) {
	for _, f := range m.rows {
		if f.limit == copyOfRound && r.limits == nil {
			continue
		}
		row := Row{Item: m.item, Name: f.name, Unit: f.unit, LessIsBetter: f.less, Limit: r.limit(f.limit)}
		for i := range cells {
			row.Results = append(row.Results, r.result(r.Transports[i].Name(), &cells[i], f))
		}
		row.compare()
		rows = append(rows, row)
	}
	return rows
}

func (r *run) limit(y yardstick) *float64 {
	switch {
	case r.limits == nil:
	case y == lineLimit:
		return &r.limits.Line
	case y == doubleLimit:
		return &r.limits.Double
	case y == copyLimit:
		return &r.limits.Copies.GBs
	}
	return nil
}

func (r *run) result(name string, c *cell, f figure) Result {
	res := Result{Transport: name}
	switch {
	case errors.Is(c.failed, ErrUnsupported):
		res.Why = reason(c.failed)
	case c.failed != nil:
		res.Why, res.Failed = c.failed.Error(), true
	default:
		res.Rounds = c.values(f.of)
		if f.limit == copyOfRound {
			for i := range res.Rounds {
				res.Rounds[i] *= 100 / r.limits.CopiesRounds[i]
			}
		}
		res.Spread = perf.SpreadOf(res.Rounds)
	}
	return res
}

// compare computes the shares and ratios.
func (row *Row) compare() {
	for i := range row.Results {
		own := &row.Results[i]
		if own.Rounds == nil {
			continue
		}
		if row.Limit != nil {
			share := own.Median / *row.Limit
			if row.LessIsBetter {
				share = 1 / share
			}
			own.OfLimit = &share
		}
		for _, other := range row.Results {
			// A figure of zero has no ratios.
			if other.Transport == own.Transport || other.Rounds == nil || other.Min <= 0 || own.Min <= 0 {
				continue
			}
			if own.TimesBetterThan == nil {
				own.TimesBetterThan = make(map[string]perf.Ratio)
			}
			own.TimesBetterThan[other.Transport] = perf.Compare(own.Rounds, other.Rounds, row.LessIsBetter)
		}
	}
}

// Failures returns what has failed on these transports.
func (r *Report) Failures(transports []string) (list []string) {
	for _, row := range r.Rows {
		for _, res := range row.Results {
			if res.Failed && slices.Contains(transports, res.Transport) {
				list = append(list, fmt.Sprintf("%s: %s: %s", res.Transport, row.Name, res.Why))
			}
		}
	}
	return list
}

// Table writes two tables of plain text: the figures, and the first transport
// compared with the limits and the others.
func (r *Report) Table(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\nrounds: %d, of %g ms for each figure\n\n", r.Host, r.Rounds, r.SliceMS)
	r.writeLimits(&b)
	if len(r.Rows) > 0 {
		perf.WriteAligned(&b, r.figures())
		fmt.Fprintf(&b, "\n%s beside the limit and the others:\n\n", r.Rows[0].Results[0].Transport)
		perf.WriteAligned(&b, r.ratios())
		r.writeNotes(&b)
	}
	perf.WriteCut(&b, r.Cut)
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Report) writeLimits(b *strings.Builder) {
	l := r.Limits
	if l == nil {
		if r.NoLimits != "" {
			fmt.Fprintf(b, "Limits are not measured: %s.\n\n", r.NoLimits)
		}
		return
	}
	perf.WriteAligned(b, [][]string{
		{"limit between two processes", "", "best", "each round"},
		{"one cache line to and fro", "a word", perf.Number(l.Line) + " µs", spreadText(l.LineRounds)},
		{"", "a word and 56 B", perf.Number(l.Filled) + " µs", spreadText(l.FilledRounds)},
		{"two cache lines to and fro", "a word and 64 B", perf.Number(l.Double) + " µs", spreadText(l.DoubleRounds)},
		{"two copies through a queue", l.Copies.String(),
			perf.Number(l.Copies.GBs) + " GB/s", spreadText(l.CopiesRounds)},
	})
	b.WriteByte('\n')
}

func spreadText(values []float64) string {
	if len(values) == 0 {
		return ""
	}
	s := perf.SpreadOf(values)
	return perf.Number(s.Min) + ".." + perf.Number(s.Max)
}

func (r *Report) figures() [][]string {
	head := []string{"test", "unit"}
	for _, res := range r.Rows[0].Results {
		head = append(head, res.Transport)
	}
	rows := [][]string{head}
	for _, row := range r.Rows {
		line := []string{row.Name, row.Unit}
		for _, res := range row.Results {
			line = append(line, res.text())
		}
		rows = append(rows, line)
	}
	return rows
}

// text returns the median and the spread.
func (res *Result) text() string {
	switch {
	case res.Failed:
		return "failed"
	case len(res.Rounds) == 0:
		return "-"
	case len(res.Rounds) == 1:
		return perf.Number(res.Median)
	}
	return perf.Number(res.Median) + " (" + spreadText(res.Rounds) + ")"
}

func (r *Report) ratios() [][]string {
	head := []string{"test", "unit", "limit", "beside it"}
	for _, res := range r.Rows[0].Results[1:] {
		head = append(head, "against "+res.Transport)
	}
	rows := [][]string{head}
	for _, row := range r.Rows {
		rows = append(rows, row.ratios())
	}
	return rows
}

func (row *Row) ratios() []string {
	first := row.Results[0]
	line := []string{row.Name, row.Unit, "-", "-"}
	if row.Limit != nil {
		line[2] = perf.Number(*row.Limit)
	}
	if first.OfLimit != nil {
		if row.LessIsBetter {
			line[3] = fmt.Sprintf("%+.2f", first.Median-*row.Limit)
		} else {
			line[3] = fmt.Sprintf("%.0f %%", 100**first.OfLimit)
		}
	}
	for _, res := range row.Results[1:] {
		cell := "-"
		if ratio, ok := first.TimesBetterThan[res.Transport]; ok {
			cell = perf.Number(ratio.Median) + "x"
			if len(first.Rounds) > 1 {
				cell += " (" + perf.Number(ratio.Min) + ".." + perf.Number(ratio.Max) + ")"
			}
		}
		line = append(line, cell)
	}
	return line
}

// unsteady is the ratio between the rounds of a transport from which on the report
// says that its ratios are to be taken with care.
const unsteady = 1.5

func (r *Report) writeNotes(b *strings.Builder) {
	b.WriteString("\nMedian of the rounds (lowest..highest). GB/s: 10^9 bytes received in a second. Ratios are made within\n" +
		"each round: 2.00x is twice as good. The limit is the best of all rounds;\n" +
		"for round trips of 56 B it is a word on one cache line, of 64 B two cache lines.\n")
	if v := r.Verified; len(v.Transports) > 0 {
		fmt.Fprintf(b, "Verified before measuring, every byte of %s each way: %s.\n",
			perf.SizeText(int(v.BytesEachWay)), strings.Join(v.Transports, ", "))
	}
	for _, row := range r.Rows {
		first := row.Results[0]
		for _, res := range row.Results {
			ratio, compared := first.TimesBetterThan[res.Transport]
			switch {
			case res.Why != "":
				fmt.Fprintf(b, "%s: %s: %s\n", row.Name, res.Transport, oneLine(res.Why))
			case compared && row.Unit != "%" && row.Unit != "x" && res.Max >= unsteady*res.Min:
				fmt.Fprintf(b, "Unsteady: %s, %s: the rounds differ %sx. Against its best round %s has %sx.\n", row.Name,
					res.Transport, perf.Number(res.Max/res.Min), first.Transport, perf.Number(ratio.AgainstBest))
			}
		}
	}
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
