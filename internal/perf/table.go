package perf

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Table writes the report as one aligned table of plain text, with explanations
// above and below.
func (r *Report) Table(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", r.Host)
	fmt.Fprintf(&b, "%s of %g ms for each test and transport, %s\n\n",
		plural(r.Rounds, "round"), r.SliceMS, plural(r.Connections, "connection"))
	WriteAligned(&b, r.rows())
	fmt.Fprintf(&b, "\nVerified before measuring, every byte of %s each way: %s.\n",
		SizeText(int(r.Verified.BytesEachWay)), strings.Join(r.Verified.Transports, ", "))
	b.WriteString("Median of the rounds, and their lowest and highest. GB/s: 10^9 bytes received in a second.\n")
	if len(r.columns()) > 0 {
		b.WriteString("Ratios are made within each round: 2.00x is twice as fast.\n")
	}
	r.writeDoubts(&b)
	WriteCut(&b, r.Cut)
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteCut writes what a Budget has cut, if anything, as a line of a report.
func WriteCut(b *strings.Builder, cut string) {
	if cut != "" {
		fmt.Fprintln(b, cut)
	}
}

// unsteady is the ratio between the rounds of a baseline from which on the table
// says that its ratios are to be taken with care. The usual cause is not other load
// but the placement of the two processes. On one CPU a wake-up is cheap. On two,
// the other CPU may have to be woken first, which on a virtual machine takes many
// times longer than the message.
const unsteady = 1.5

func (r *Report) writeDoubts(b *strings.Builder) {
	for _, t := range r.Tests {
		for _, base := range t.Results {
			if base.Max < unsteady*base.Min {
				continue
			}
			var best []string
			for _, res := range t.Results {
				if ratio, ok := res.TimesFasterThan[base.Transport]; ok {
					best = append(best, fmt.Sprintf("%s %sx", res.Transport, Number(ratio.AgainstBest)))
				}
			}
			if len(best) > 0 {
				fmt.Fprintf(b, "Unsteady: %s, %s: the rounds differ %sx. Against its best round: %s.\n",
					t.Test, base.Transport, Number(base.Max/base.Min), strings.Join(best, ", "))
			}
		}
	}
}

// columns returns the baselines with which something was compared.
func (r *Report) columns() []string {
	var names []string
	for _, base := range baselines {
		if r.compares(base) {
			names = append(names, base)
		}
	}
	return names
}

func (r *Report) compares(base string) bool {
	for _, t := range r.Tests {
		for _, res := range t.Results {
			if _, ok := res.TimesFasterThan[base]; ok {
				return true
			}
		}
	}
	return false
}

func (r *Report) rows() [][]string {
	columns := r.columns()
	head := []string{"test", "transport", "median", "min..max", "p50", "p99"}
	for _, base := range columns {
		head = append(head, "against "+base)
	}
	rows := [][]string{head}
	for _, t := range r.Tests {
		unit := strings.Replace(t.Unit, "us", "µs", 1)
		for _, res := range t.Results {
			row := []string{
				t.Test + ", " + SizeText(t.Size),
				res.Transport,
				Number(res.Median) + " " + unit,
				rangeText(res.Spread),
				optional(res.P50, unit),
				optional(res.P99, unit),
			}
			for _, base := range columns {
				row = append(row, ratioText(res.TimesFasterThan, base))
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// WriteAligned writes a table with two spaces between columns. The first two
// columns are aligned to the left, and the figures to the right.
func WriteAligned(b *strings.Builder, rows [][]string) {
	width := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		for i, cell := range row {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if i > 0 {
				b.WriteString("  ")
			}
			if i < 2 {
				b.WriteString(cell + pad)
			} else {
				b.WriteString(pad + cell)
			}
		}
		b.WriteByte('\n')
	}
}

// Number returns v with two or three significant digits.
func Number(v float64) string {
	switch {
	case v < 0.095:
		return fmt.Sprintf("%.2g", v)
	case v < 9.995:
		return fmt.Sprintf("%.2f", v)
	case v < 99.95:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

func rangeText(s Spread) string { return Number(s.Min) + ".." + Number(s.Max) }

func optional(v *float64, unit string) string {
	if v == nil {
		return "-"
	}
	return Number(*v) + " " + unit
}

func ratioText(ratios map[string]Ratio, base string) string {
	s, ok := ratios[base]
	if !ok {
		return "-"
	}
	return fmt.Sprintf("%sx (%s)", Number(s.Median), rangeText(s.Spread))
}

// SizeText returns a number of bytes with the largest binary unit that leaves no
// fraction, such as "64 KiB".
func SizeText(n int) string {
	for _, u := range []struct {
		shift uint
		name  string
	}{{30, "GiB"}, {20, "MiB"}, {10, "KiB"}} {
		if n > 0 && n%(1<<u.shift) == 0 {
			return fmt.Sprintf("%d %s", n>>u.shift, u.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
