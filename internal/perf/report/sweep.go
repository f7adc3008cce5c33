package report

import (
	"fmt"

	"github.com/ntbnet/ntbnet/internal/perf/meter"
)

// Sweep has round trips by size.
type Sweep struct {
	Head
	Transport string       `json:"transport"`
	Points    []SweepPoint `json:"points"`
}

// SweepPoint is a size.
type SweepPoint struct {
	Size    int          `json:"bytes"`
	Mbps    float64      `json:"mbits_per_second"` // one way
	Seconds float64      `json:"seconds"`          // one way: half of the median round trip
	Times   *meter.Times `json:"round_trip"`
}

// SweepSizes returns 1 B to 8 MiB: powers of two, and what is half as large again.
func SweepSizes() (sizes []int) {
	for n := 1; n <= 8<<20; n *= 2 {
		sizes = append(sizes, n)
		if n >= 4 && n < 8<<20 {
			sizes = append(sizes, n*3/2)
		}
	}
	return sizes
}

// Add adds a size, and returns its line of NetPIPE's file.
func (s *Sweep) Add(size int, t *meter.Times) string {
	p := SweepPoint{Size: size, Seconds: t.At(50).Seconds() / 2, Times: t}
	if p.Seconds > 0 {
		p.Mbps = float64(size) * 8 / 1e6 / p.Seconds
	}
	s.Points = append(s.Points, p)
	return fmt.Sprintf("%8d %12.6f %12.9f\n", p.Size, p.Mbps, p.Seconds)
}

// Picture draws the sweep.
func (s *Sweep) Picture() Chart {
	c := Chart{Title: "Round trips by size, " + s.Transport, X: "bytes", Y: "µs", XTicks: sizeTicks(1, 8<<20)}
	p50, p99 := Line{Name: "median"}, Line{Name: "99 % are below"}
	for _, p := range s.Points {
		p50.Points = append(p50.Points, [2]float64{float64(p.Size), p.Seconds * 2e6})
		p99.Points = append(p99.Points, [2]float64{float64(p.Size), meter.Micros(p.Times.At(99))})
	}
	c.Lines = []Line{p50, p99}
	return c
}

func sizeTicks(from, to int) (ticks []Tick) {
	for n := from; n <= to; n *= 8 {
		ticks = append(ticks, Tick{float64(n), meter.SizeText(n)})
	}
	return ticks
}
