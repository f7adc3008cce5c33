package pgas

import (
	"fmt"
	"strings"

	"github.com/ntbnet/ntbnet/internal/perf"
)

// Case is one distance in a ring.
type Case struct {
	Name   string
	Hops   int  // from PE 0 to the other one, which is PE Hops
	PEs    int  // of the ring; the rest forwards
	Strict bool // no memory is mapped, not even a neighbour's
}

// Cases are the cases of the second table. In a ring of 2h nodes, node h is h hops
// away in either direction.
var Cases = []Case{
	{Name: "1 hop, mapped", Hops: 1, PEs: 2},
	{Name: "1 hop, strict", Hops: 1, PEs: 2, Strict: true},
	{Name: "2 hops", Hops: 2, PEs: 4},
	{Name: "3 hops", Hops: 3, PEs: 6},
	{Name: "4 hops", Hops: 4, PEs: 8},
}

// RingKeys are the items of the second table.
var RingKeys = []string{"putquiet", "get", "put1m"}

// papers are figures that others have published, by item. For the sources see
// writeRing.
var papers = map[string]string{
	"putquiet": "-",
	"get":      "-",
	"put1m":    "4.5..5.0",
	"further":  "+22..36",
}

// AddRing adds the second table. Columns are named like Cases.
func (r *Report) AddRing(columns []Column) {
	for _, c := range columns {
		r.cases = append(r.cases, c.Name)
		r.Rounds = len(c.Samples)
	}
	for _, key := range RingKeys {
		r.Ring = append(r.Ring, makeRow(itemOf(key), columns))
		if key == "putquiet" {
			r.Ring = append(r.Ring, further(columns))
		}
	}
}

// further returns the row with how much longer a put takes than over one hop less,
// in percent, where all operations are requests.
func further(columns []Column) Row {
	row := Row{Item: "further", Name: "the same, against one hop less", Unit: "%"}
	for i := 2; i < len(columns); i++ {
		own, before := columns[i].values(itemOf("putquiet")), columns[i-1].values(itemOf("putquiet"))
		if own == nil || before == nil {
			continue
		}
		list := make([]float64, len(own))
		for k := range list {
			list[k] = 100 * (own[k]/before[k] - 1)
		}
		row.Results = append(row.Results, Result{Column: columns[i].Name, Spread: perf.SpreadOf(list), Rounds: list})
	}
	return row
}

func (r *Report) writeRing(b *strings.Builder) {
	b.WriteString("\nPEs as nodes of a ring, by hops between the two:\n\n")
	rows := [][]string{append(append([]string{"operation", "unit"}, r.cases...), "papers")}
	for _, row := range r.Ring {
		cells := append([]string{row.Name, row.Unit}, row.figures(r.cases)...)
		rows = append(rows, append(cells, papers[row.Item]))
	}
	perf.WriteAligned(b, rows)
	b.WriteString("\nThe ring of h hops has 2h nodes, each a process that forwards what is not for it.")
	if most := Cases[len(Cases)-1].PEs; most > r.Host.CPUs {
		fmt.Fprintf(b, "\nFrom 2 hops on they are more than the %d processors here, and take turns; hosts have processors\nof their own.", r.Host.CPUs)
	}
	b.WriteString("\nPapers: OpenSHMEM over a ring of PCIe Gen3 x8 bridges (JIPS 2022), shmem_double_put of 1 MB or\n" +
		"more to a neighbour, 80 to 85 % of the raw 6 GB/s; and latency for each host that the ring has more, 3 to 5\n" +
		"hosts, one thread. Theirs are real bridges, ours are memory of one machine: compare shapes, not figures.\n")
}
