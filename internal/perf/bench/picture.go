package bench

import (
	"io"

	"github.com/ntbnet/ntbnet/internal/perf/plot"
)

// Picture writes latency and throughput against message size, as SVG. The report
// must have a sweep.
func (r *Report) Picture(w io.Writer) error {
	latency := plot.Chart{Title: "Round trip", X: "message, bytes", Y: "µs"}
	throughput := plot.Chart{Title: "One way, one connection", X: "message, bytes", Y: "GB/s"}
	if r.Limits != nil {
		latency.Level, latency.LevelName = r.Limits.Line, "one cache line to and fro"
		throughput.Level, throughput.LevelName = r.Limits.Copies.GBs, "two copies of 64 KiB through a queue"
	}
	for _, c := range r.Sweep {
		latency.Lines = append(latency.Lines, plot.Line{Name: c.Transport, Points: points(c.RoundTrip)})
		throughput.Lines = append(throughput.Lines, plot.Line{Name: c.Transport, Points: points(c.OneWay)})
	}
	return plot.Write(w, "Two processes, "+r.Host.String(), latency, throughput)
}

func points(list []Point) (out []plot.Point) {
	for _, p := range list {
		out = append(out, plot.Point{X: float64(p.Size), Y: p.Value})
	}
	return out
}
