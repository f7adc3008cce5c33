package report

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/ntbnet/ntbnet/internal/perf/meter"
)

// SHMEM has operations of package shmem between processes of one machine.
type SHMEM struct {
	Time      Timestamp   `json:"timestamp"`
	Version   string      `json:"version"`
	System    string      `json:"system_info"`
	Arguments []string    `json:"arguments"`
	PEs       int         `json:"pes"`
	Mapped    []SHMEMItem `json:"mapped"`   // by loads and stores
	Requests  []SHMEMItem `json:"requests"` // as to a PE whose memory is not mapped
	Error     string      `json:"error,omitempty"`
}

// SHMEMRow is an operation as PE 0 has measured it.
type SHMEMRow struct {
	Item  string
	Size  int          // bytes; of a barrier PEs
	Batch int          // operations that are timed together
	Times *meter.Times // of batches
}

// SHMEMItem is an operation.
type SHMEMItem struct {
	Item   string  `json:"operation"`
	Size   int     `json:"size"`
	Median float64 `json:"median_us"` // of the means of batches
	P99    float64 `json:"p99_us"`
	Max    float64 `json:"max_us"`
	Batch  int     `json:"batch"`
	Count  int64   `json:"batches"`
}

// NewSHMEM returns one that begins now.
func NewSHMEM(version string, arguments []string, pes int) *SHMEM {
	now := time.Now()
	return &SHMEM{Time: Timestamp{now.UTC().Format(time.RFC1123), now.Unix()}, Version: version, System: System(), Arguments: arguments, PEs: pes}
}

// Add adds an operation. strict says that it was by requests.
func (s *SHMEM) Add(strict bool, r SHMEMRow) {
	if r.Times == nil || r.Batch < 1 {
		return
	}
	us := func(d time.Duration) float64 { return Micros(d) / float64(r.Batch) }
	item := SHMEMItem{r.Item, r.Size, us(r.Times.At(50)), us(r.Times.At(99)), us(r.Times.Max()), r.Batch, r.Times.Count()}
	if strict {
		s.Requests = append(s.Requests, item)
	} else {
		s.Mapped = append(s.Mapped, item)
	}
}

// End sets the error that ended it early.
func (s *SHMEM) End(err error) {
	if err != nil {
		s.Error = err.Error()
	}
}

// JSON writes all as JSON.
func (s *SHMEM) JSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "\t")
	return enc.Encode(s)
}

// Text writes tables with the columns of OSU's micro-benchmarks, and some behind them.
func (s *SHMEM) Text(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s. PEs: %d\n", s.System, s.PEs)
	if s.Error != "" {
		fmt.Fprintf(&b, "# Ended early: %s\n", s.Error)
	}
	b.WriteString("# Medians of the means of 16 operations; by loads and stores, then by requests\n")
	s.table(&b, "Put", "Size (B)", func(i SHMEMItem) (string, bool) { return fmt.Sprint(i.Size), i.Item == "put" })
	s.table(&b, "Get", "Size (B)", func(i SHMEMItem) (string, bool) { return fmt.Sprint(i.Size), i.Item == "get" })
	s.table(&b, "Atomics, 8 B", "Operation", func(i SHMEMItem) (string, bool) {
		return i.Item, !slices.Contains([]string{"put", "get", "barrier"}, i.Item)
	})
	s.table(&b, "Barrier", "PEs", func(i SHMEMItem) (string, bool) { return fmt.Sprint(i.Size), i.Item == "barrier" })
	_, err := io.WriteString(w, b.String())
	return err
}

func (s *SHMEM) table(b *strings.Builder, title, first string, of func(SHMEMItem) (string, bool)) {
	t := Table{{"# " + first, "Latency (us)", "p99", "max", "MB/s", "Requests (us)", "p99", "max"}}
	for _, m := range s.Mapped {
		name, ok := of(m)
		if !ok {
			continue
		}
		rate := "-"
		if strings.HasPrefix(first, "Size") {
			rate = Number(float64(m.Size) / m.Median)
		}
		row := []string{name, Number(m.Median), Number(m.P99), Number(m.Max), rate, "-", "-", "-"}
		for _, r := range s.Requests {
			if r.Item == m.Item && r.Size == m.Size {
				row = append(row[:5], Number(r.Median), Number(r.P99), Number(r.Max))
			}
		}
		t = append(t, row)
	}
	if len(t) > 1 {
		fmt.Fprintf(b, "\n# %s\n%s", title, t)
	}
}

// Picture draws puts and gets by size.
func (s *SHMEM) Picture() Chart {
	c := Chart{Title: fmt.Sprintf("shmem, PEs: %d", s.PEs), X: "bytes", Y: "µs", XLog: true, YLog: true}
	for n := 8; n <= 1<<20; n *= 8 {
		c.XTicks = append(c.XTicks, Tick{float64(n), meter.SizeText(n)})
	}
	for i, items := range [][]SHMEMItem{s.Mapped, s.Requests} {
		for _, item := range []string{"put", "get"} {
			l := Line{Name: item + []string{" by loads and stores", " by requests"}[i]}
			for _, one := range items {
				if one.Item == item {
					l.Points = append(l.Points, [2]float64{float64(one.Size), one.Median})
				}
			}
			c.Lines = append(c.Lines, l)
		}
	}
	return c
}
