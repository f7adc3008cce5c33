package hops

import (
	"fmt"
	"io"
	"strings"

	"github.com/ntbnet/ntbnet/internal/perf"
)

// Table writes the report as aligned tables of plain text.
func (r *Report) Table(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", r.Host)
	fmt.Fprintf(&b, "Medians of %d rounds of %g ms. Each node is a process.\n", r.Rounds, r.SliceMS)
	if len(r.Rows) > 0 {
		r.writeRings(&b)
	}
	r.writeWork(&b)
	if len(r.Rows) > 0 {
		r.writeScheduling(&b)
		r.writeShares(&b)
		r.writePapers(&b)
	}
	if len(r.Chains) > 0 {
		r.writeChains(&b)
	}
	perf.WriteCut(&b, r.Cut)
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Report) writeRings(b *strings.Builder) {
	b.WriteByte('\n')
	perf.WriteAligned(b, r.rows())
	b.WriteString("\nRound trips of 64 B in µs, one way with 64 KiB. Alone: node 1 and the node so many hops to its\n" +
		"right. All: each node and that one, at once; GB/s of all, and the slowest pair's part of its fair share.\n" +
		"Hop: CPU time of the processes that forward, wake-ups and all, for each frame of the round trips in µs,\n")
	fmt.Fprintf(b, "and for 64 KiB one way in plain copies of 64 KiB, of which one takes %s µs.\n", perf.Number(r.copy()))
}

func (r *Report) rows() [][]string {
	rows := [][]string{{"nodes", "lanes", "hops", "alone p50", "p99", "GB/s", "hop µs", "copies", "all p50", "p99", "GB/s", "slowest"}}
	for _, row := range r.Rows {
		hops := fmt.Sprint(row.Hops)
		if !row.Frames {
			hops = "stores"
		}
		cost := []string{"-", "-"}
		if row.Alone.Frame > 0 {
			cost = []string{perf.Number(row.Alone.Frame), perf.Number(row.Alone.Data / r.copy())}
		}
		rows = append(rows, []string{
			fmt.Sprint(row.Nodes), fmt.Sprint(row.Lanes), hops,
			perf.Number(row.Alone.P50), perf.Number(row.Alone.P99), perf.Number(row.Alone.Throughput), cost[0], cost[1],
			perf.Number(row.Together.P50), perf.Number(row.Together.P99), perf.Number(row.Together.Throughput), perf.Number(row.Together.Slowest),
		})
	}
	return rows
}

func (r *Report) writeWork(b *strings.Builder) {
	rows := [][]string{{"frame", "forwarded µs", "min..max", "plain copy µs", "copies"}}
	for _, w := range r.Work {
		rows = append(rows, []string{
			perf.SizeText(w.Size), perf.Number(w.Forward.Median), perf.Number(w.Forward.Min) + ".." + perf.Number(w.Forward.Max),
			perf.Number(w.Copy.Median), perf.Number(w.Forward.Median / w.Copy.Median),
		})
	}
	b.WriteString("\nCPU time of one forwarded frame while the node is busy, measured within one process:\n\n")
	perf.WriteAligned(b, rows)
}

// writeScheduling explains times where processes wait for processors.
func (r *Report) writeScheduling(b *strings.Builder) {
	most, least := 0, r.Rows[0].Nodes
	for _, row := range r.Rows {
		most, least = max(most, row.Nodes), min(least, row.Nodes)
	}
	if most > r.Host.CPUs {
		fmt.Fprintf(b, "\nMore node processes (%d to %d) than processors (%d): times then measure the scheduler, which wakes\n"+
			"process after process; the CPU times are what a hop costs.\n", least, most, r.Host.CPUs)
	}
}

func (r *Report) writeShares(b *strings.Builder) {
	rows := [][]string{{"own", "forwarded", "own share", "forwarded share", "min..max of own", "GB/s"}}
	for _, s := range r.Shares {
		rows = append(rows, []string{
			perf.SizeText(s.OwnSize), perf.SizeText(s.ForwardedSize),
			percent(s.Own.Median), percent(1 - s.Own.Median), percent(s.Own.Min) + ".." + percent(s.Own.Max), perf.Number(s.Throughput),
		})
	}
	b.WriteString("\nThe link from node 2 to node 3, when both node 2 and, through it, node 1 send all they can to node 3:\n\n")
	perf.WriteAligned(b, rows)
}

func percent(v float64) string { return fmt.Sprintf("%.0f %%", 100*v) }

// writePapers compares with two papers on rings: Ring over NTB (Korea, 2019) and
// OpenSHMEM over the ring (JIPS 2022).
func (r *Report) writePapers(b *strings.Builder) {
	rows := [][]string{{"median latency", "papers", "here, alone", "here, all"}}
	for _, c := range r.comparisons() {
		rows = append(rows, []string{c.what, c.papers, changeOf(c.alone), changeOf(c.all)})
	}
	b.WriteString("\nBeside Ring over NTB (Korea, 2019) and OpenSHMEM over the ring (JIPS 2022), on 3 to 5 hosts with 1 to 8\n" +
		"threads. Here a connection stays on its lane, so that lanes matter where several share a link:\n\n")
	perf.WriteAligned(b, rows)
}

// comparison is a set of changes of the median latency, as fractions of the earlier
// value.
type comparison struct {
	what, papers string
	alone, all   []float64
}

func (r *Report) comparisons() []comparison {
	hop := comparison{what: "one more hop, 1 lane", papers: "-"}
	host := comparison{what: "one more host, 1 lane", papers: "+22..36 %"}
	lanes := []comparison{
		{what: "lanes 1 -> 2", papers: "-38..45 %"},
		{what: "lanes 2 -> 4", papers: "-12..25 %"},
		{what: "lanes 4 -> 8", papers: "no gain"},
	}
	for _, to := range r.Rows {
		if !to.Frames {
			continue
		}
		if from, ok := r.find(to.Nodes, to.Lanes, to.Hops-1); ok && to.Lanes == 1 {
			hop.add(from, to)
		}
		if from, ok := r.find(to.Nodes-1, to.Lanes, to.Hops); ok && to.Lanes == 1 {
			host.add(from, to)
		}
		for i := range lanes {
			if from, ok := r.find(to.Nodes, to.Lanes/2, to.Hops); ok && to.Lanes == 2<<i {
				lanes[i].add(from, to)
			}
		}
	}
	return append([]comparison{hop, host}, lanes...)
}

func (c *comparison) add(from, to Row) {
	c.alone = append(c.alone, to.Alone.P50/from.Alone.P50-1)
	c.all = append(c.all, to.Together.P50/from.Together.P50-1)
}

func (r *Report) find(nodes, lanes, hops int) (Row, bool) {
	for _, row := range r.Rows {
		if row.Frames && row.Nodes == nodes && row.Lanes == lanes && row.Hops == hops {
			return row, true
		}
	}
	return Row{}, false
}

// changeOf returns the median, the least and the greatest of changes.
func changeOf(v []float64) string {
	if len(v) == 0 {
		return "-"
	}
	s := perf.SpreadOf(v)
	return fmt.Sprintf("%+.0f %% (%+.0f..%+.0f)", 100*s.Median, 100*s.Min, 100*s.Max)
}
