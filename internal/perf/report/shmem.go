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
	Item   string      `json:"operation"`
	Size   int         `json:"size"` // bytes; of a barrier PEs
	Batch  int         `json:"operations_timed_together"`
	Times  meter.Times `json:"times"`
	CPU    float64     `json:"cpu_us_per_operation"` // of PE 0
	Others float64     `json:"cpu_us_per_operation_of_others"`
}

// us returns a percentile of an operation, or of the means of Batch, in microseconds.
func (i *SHMEMItem) us(percentile float64) float64 {
	return meter.Micros(i.Times.At(percentile)) / float64(max(i.Batch, 1))
}

// Text writes tables with the columns of OSU's micro-benchmarks, and some behind them.
func (s *SHMEM) Text(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 8, 1, ' ', 0) // numbers of 7 characters fit into 80 columns
	fmt.Fprintf(t, "# %s. PEs: %d\n", s.System, s.PEs)
	if s.Error != "" {
		fmt.Fprintf(t, "# Ended early: %s\n", s.Error)
	}
	fmt.Fprint(t, "# Latency: the median of operations, or of the means of as many as Timed says.\n# CPU: processor time of an operation, of PE 0 and of all others together.\n")
	last := ""
	for i, items := range [][]SHMEMItem{s.Mapped, s.Requests} {
		for _, m := range items {
			title, head, name, rate := m.Item, "Size (B)", fmt.Sprint(m.Size), "-"
			switch m.Item {
			case "put", "get":
				rate = Number(float64(m.Size) / m.us(50))
			case "barrier":
				head = "PEs"
			default:
				title, head, name = "atomics, 8 B", "Operation", m.Item
			}
			if title += []string{", by loads and stores", ", by requests"}[i]; title != last {
				fmt.Fprintf(t, "\n# %s\n# %s\tLatency (us)\tp99\tp99.9\tmax\tMB/s\tCPU (us)\tothers\tTimed\n", title, head)
			}
			last = title
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\n", name, Number(m.us(50)), Number(m.us(99)), Number(m.us(99.9)), Number(m.us(100)), rate, Number(m.CPU), Number(m.Others), m.Batch)
		}
	}
	return t.Flush()
}

// Picture draws puts and gets by size.
func (s *SHMEM) Picture() Chart {
	c := Chart{Title: fmt.Sprintf("shmem, PEs: %d", s.PEs), X: "bytes", Y: "µs", XTicks: sizeTicks(8, 1<<20)}
	for i, items := range [][]SHMEMItem{s.Mapped, s.Requests} {
		for _, item := range []string{"put", "get"} {
			l := Line{Name: item + []string{" by loads and stores", " by requests"}[i]}
			for _, one := range items {
				if one.Item == item && one.Times.Count() > 0 {
					l.Points = append(l.Points, [2]float64{float64(one.Size), one.us(50)})
				}
			}
			c.Lines = append(c.Lines, l)
		}
	}
	return c
}
