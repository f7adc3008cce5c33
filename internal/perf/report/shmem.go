package report

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/ntbnet/ntbnet/internal/perf/meter"
)

// SHMEM has operations of package shmem between processes of one machine.
type SHMEM struct {
	Head
	PEs      int         `json:"pes"`
	Mapped   []SHMEMItem `json:"mapped"`   // by loads and stores
	Requests []SHMEMItem `json:"requests"` // as to a PE whose memory is not mapped
}

// SHMEMItem is an operation as PE 0 has measured it. Times are those of Batch operations together.
type SHMEMItem struct {
	Item  string       `json:"operation"`
	Size  int          `json:"size"` // bytes; of a barrier PEs
	Batch int          `json:"operations_timed_together"`
	Times *meter.Times `json:"times"`
}

// us returns a percentile of the means of batches, in microseconds.
func (i SHMEMItem) us(percentile float64) float64 {
	return meter.Micros(i.Times.At(percentile)) / float64(max(i.Batch, 1))
}

// Text writes tables with the columns of OSU's micro-benchmarks, and some behind them.
func (s *SHMEM) Text(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintf(t, "# %s. PEs: %d\n", s.System, s.PEs)
	if s.Error != "" {
		fmt.Fprintf(t, "# Ended early: %s\n", s.Error)
	}
	fmt.Fprint(t, "# Medians of the means of 16 operations; by loads and stores, then by requests\n")
	last := ""
	for i, m := range s.Mapped {
		title, head, name, rate := m.Item, "Size (B)", fmt.Sprint(m.Size), "-"
		switch m.Item {
		case "put", "get":
			rate = Number(float64(m.Size) / m.us(50))
		case "barrier":
			head = "PEs"
		default:
			title, head, name = "atomics, 8 B", "Operation", m.Item
		}
		if title != last {
			fmt.Fprintf(t, "\n# %s\n# %s\tLatency (us)\tp99\tmax\tMB/s\tRequests (us)\tp99\tmax\n", title, head)
		}
		last = title
		fmt.Fprintf(t, "%s\t%s\t%s", name, m.figures(), rate)
		if i < len(s.Requests) {
			fmt.Fprintf(t, "\t%s", s.Requests[i].figures())
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

// figures returns the median, p99 and the maximum.
func (i SHMEMItem) figures() string {
	return Number(i.us(50)) + "\t" + Number(i.us(99)) + "\t" + Number(i.us(100))
}

// Picture draws puts and gets by size.
func (s *SHMEM) Picture() Chart {
	c := Chart{Title: fmt.Sprintf("shmem, PEs: %d", s.PEs), X: "bytes", Y: "µs", XTicks: sizeTicks(8, 1<<20)}
	for i, items := range [][]SHMEMItem{s.Mapped, s.Requests} {
		for _, item := range []string{"put", "get"} {
			l := Line{Name: item + []string{" by loads and stores", " by requests"}[i]}
			for _, one := range items {
				if one.Item == item {
					l.Points = append(l.Points, [2]float64{float64(one.Size), one.us(50)})
				}
			}
			c.Lines = append(c.Lines, l)
		}
	}
	return c
}
