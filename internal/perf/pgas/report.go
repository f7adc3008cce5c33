package pgas

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/ntbnet/ntbnet/internal/perf"
)

// Names of columns. Others are compared with OpenMPI.
const (
	Direct  = "direct"
	Strict  = "strict"
	OpenMPI = "Open MPI"
)

// Column is one library, or one way of using it, with a sample for each round.
type Column struct {
	Name    string
	Samples []Sample
}

// Report is what was measured. It is printed by Table or as JSON.
type Report struct {
	Host   perf.Host `json:"host"`
	Rounds int       `json:"rounds"`
	Cut    string    `json:"cut,omitempty"` // what was left out for lack of time
	TimeMS float64   `json:"time_ms"`       // of one item in one round
	Rows   []Row     `json:"rows"`
	Ring   []Row     `json:"ring,omitempty"`

	columns, cases []string
}

// Row is one item.
type Row struct {
	Item    string   `json:"item"`
	Name    string   `json:"name"`
	Unit    string   `json:"unit"` // "ns", "GB/s" (10^9 bytes) or "%"
	Aim     float64  `json:"aim,omitempty"`
	Results []Result `json:"results"`
}

// Result is one column of a row.
type Result struct {
	Column string `json:"column"`
	perf.Spread
	Rounds []float64 `json:"each_round"`
	// AgainstOpenMPI is how many times faster than Open MPI it is.
	AgainstOpenMPI *perf.Ratio `json:"times_faster_than_open_mpi,omitempty"`
}

// values returns a column's figures of an item. It returns nil unless each round
// has one.
func (c *Column) values(it Item) (list []float64) {
	for _, s := range c.Samples {
		ns, ok := s[it.Key]
		if !ok || ns <= 0 {
			return nil
		}
		list = append(list, it.value(ns))
	}
	return list
}

// NewReport makes the rows of the columns. All columns have a sample for each
// round.
func NewReport(host perf.Host, timeMS float64, columns []Column) *Report {
	r := &Report{Host: host, TimeMS: timeMS}
	for _, c := range columns {
		r.columns = append(r.columns, c.Name)
		r.Rounds = len(c.Samples)
	}
	for _, it := range items {
		if row := makeRow(it, columns); len(row.Results) > 0 {
			r.Rows = append(r.Rows, row)
		}
	}
	if row := shares(columns); len(row.Results) > 0 {
		r.Rows = append(r.Rows, row)
	}
	return r
}

func makeRow(it Item, columns []Column) Row {
	row := Row{Item: it.Key, Name: it.Name, Unit: it.unit(), Aim: it.Aim}
	var base []float64
	if i := slices.IndexFunc(columns, func(c Column) bool { return c.Name == OpenMPI }); i >= 0 {
		base = columns[i].values(it)
	}
	for _, c := range columns {
		values := c.values(it)
		if values == nil {
			continue
		}
		res := Result{Column: c.Name, Spread: perf.SpreadOf(values), Rounds: values}
		if base != nil && c.Name != OpenMPI {
			ratio := perf.Compare(values, base, it.Bytes == 0)
			res.AgainstOpenMPI = &ratio
		}
		row.Results = append(row.Results, res)
	}
	return row
}

// shareAim is the share of a plain copy's rate that a put should reach, in percent.
const shareAim = 95

// shares returns the row with the share that a put of 1 MiB reaches of the best
// plain copy, computed in each round.
func shares(columns []Column) Row {
	row := Row{Item: "share", Name: "put 1 MiB, of the best plain copy", Unit: "%"}
	for _, c := range columns {
		put, whole, pieces := c.values(itemOf("put1m")), c.values(itemOf("copy")), c.values(itemOf("copypieces"))
		if put == nil || whole == nil || pieces == nil {
			continue
		}
		list := make([]float64, len(put))
		for i := range list {
			list[i] = 100 * put[i] / max(whole[i], pieces[i])
		}
		row.Results = append(row.Results, Result{Column: c.Name, Spread: perf.SpreadOf(list), Rounds: list})
	}
	return row
}

// Table writes the report as plain text.
func (r *Report) Table(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\nrounds: %d, of %g ms for each figure\n", r.Host, r.Rounds, r.TimeMS)
	if len(r.Rows) > 0 {
		b.WriteByte('\n')
		perf.WriteAligned(&b, r.grid())
		r.writeNotes(&b)
	}
	if len(r.Ring) > 0 {
		r.writeRing(&b)
	}
	perf.WriteCut(&b, r.Cut)
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Report) compares() bool { return slices.Contains(r.columns, OpenMPI) }

// grid has the ratios of the direct column only. Those of the others are in the JSON.
func (r *Report) grid() [][]string {
	head := append([]string{"operation", "unit"}, r.columns...)
	if r.compares() {
		head = append(head, Direct+", times faster")
	}
	rows := [][]string{head}
	for _, row := range r.Rows {
		cells := append([]string{row.Name, row.Unit}, row.figures(r.columns)...)
		if r.compares() {
			cells = append(cells, row.ratio(Direct))
		}
		rows = append(rows, cells)
	}
	return rows
}

func (row *Row) result(column string) *Result {
	if i := slices.IndexFunc(row.Results, func(res Result) bool { return res.Column == column }); i >= 0 {
		return &row.Results[i]
	}
	return nil
}

func (row *Row) figures(columns []string) (cells []string) {
	for _, c := range columns {
		cells = append(cells, "-")
		if res := row.result(c); res != nil {
			cells[len(cells)-1] = fmt.Sprintf("%s (%s..%s)", perf.Number(res.Median), perf.Number(res.Min), perf.Number(res.Max))
		}
	}
	return cells
}

func (row *Row) ratio(column string) string {
	res := row.result(column)
	if res == nil || res.AgainstOpenMPI == nil {
		return "-"
	}
	ratio := res.AgainstOpenMPI
	return fmt.Sprintf("%sx (%s..%s)", perf.Number(ratio.Median), perf.Number(ratio.Min), perf.Number(ratio.Max))
}

func (r *Report) writeNotes(b *strings.Builder) {
	b.WriteString("\nMedian of the rounds (lowest..highest). GB/s: 10^9 bytes in a second. ")
	if r.compares() {
		b.WriteString("Ratios are made within each round.")
	}
	b.WriteString("\ndirect: the other PE's memory is mapped. strict: it is not, as with a bridge, and all goes by requests.\n")
	if r.Host.CPUs < 4 && slices.ContainsFunc(r.Rows, func(row Row) bool { return row.Item == "barrier4" }) {
		fmt.Fprintf(b, "4 PEs share %d processors: they take turns.\n", r.Host.CPUs)
	}
	for _, m := range r.Missed() {
		fmt.Fprintln(b, "Below the aim: "+m+".")
	}
}

// Missed describes the aims that the direct column does not reach.
func (r *Report) Missed() (list []string) {
	for _, row := range r.Rows {
		res := row.result(Direct)
		switch {
		case res == nil:
		case row.Item == "share":
			if res.Median < shareAim {
				list = append(list, fmt.Sprintf("%s: %s %%, aim %d %%", row.Name, perf.Number(res.Median), shareAim))
			}
		case res.AgainstOpenMPI != nil && res.AgainstOpenMPI.Median < row.Aim:
			list = append(list, fmt.Sprintf("%s: %sx, aim %sx", row.Name, perf.Number(res.AgainstOpenMPI.Median), perf.Number(row.Aim)))
		}
	}
	return list
}
