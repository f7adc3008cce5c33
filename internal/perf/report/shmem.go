package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

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
	Times *meter.Times `json:"histogram"`
}

// us returns a percentile of the means of batches, in microseconds.
func (i SHMEMItem) us(percentile float64) float64 {
	return Micros(i.Times.At(percentile)) / float64(max(i.Batch, 1))
}

// Text writes tables with the columns of OSU's micro-benchmarks, and some behind them.
func (s *SHMEM) Text(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s. PEs: %d\n", s.System, s.PEs)
	if s.Error != "" {
		fmt.Fprintf(&b, "# Ended early: %s\n", s.Error)
	}
	b.WriteString("# Medians of the means of 16 operations; by loads and stores, then by requests\n")
	for _, of := range [][2]string{{"put", "Size (B)"}, {"get", "Size (B)"}, {"atomics, 8 B", "Operation"}, {"barrier", "PEs"}} {
		t := Table{{"# " + of[1], "Latency (us)", "p99", "max", "MB/s", "Requests (us)", "p99", "max"}}
		for _, m := range s.Mapped {
			name, rate, other := fmt.Sprint(m.Size), "-", slices.Contains([]string{"put", "get", "barrier"}, m.Item)
			switch {
			case !other && of[1] == "Operation":
				name = m.Item
			case m.Item != of[0]:
				continue
			case of[1] == "Size (B)":
				rate = Number(float64(m.Size) / m.us(50))
			}
			row := []string{name, Number(m.us(50)), Number(m.us(99)), Number(m.us(100)), rate}
			for _, r := range s.Requests {
				if r.Item == m.Item && r.Size == m.Size {
					row = append(row, Number(r.us(50)), Number(r.us(99)), Number(r.us(100)))
				}
			}
			t = append(t, row)
		}
		if len(t) > 1 {
			fmt.Fprintf(&b, "\n# %s\n%s", of[0], t)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
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
