package report

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/ntbnet/ntbnet/internal/perf/meter"
	"github.com/ntbnet/ntbnet/sdp"
)

// Sweep has round trips by size.
type Sweep struct {
	Time       Timestamp       `json:"timestamp"`
	Version    string          `json:"version"`
	System     string          `json:"system_info"`
	Arguments  []string        `json:"arguments"`
	Transport  string          `json:"transport"`
	Verified   uint64          `json:"verified_bytes_each_way"`
	Points     []SweepPoint    `json:"points"`
	Crossovers []sdp.Crossover `json:"crossovers"` // of devices with an engine that copies
	Error      string          `json:"error,omitempty"`
}

// SweepPoint is a size.
type SweepPoint struct {
	Size    int      `json:"bytes"`
	Mbps    float64  `json:"mbits_per_second"` // one way
	Seconds float64  `json:"seconds"`          // one way: half of the median round trip
	Latency *Latency `json:"round_trip"`
}

// SweepSizes returns 1 B to 8 MiB: powers of two, and what is three of two of them.
func SweepSizes() (sizes []int) {
	for n := 1; n <= 8<<20; n *= 2 {
		sizes = append(sizes, n)
		if n >= 4 && n < 8<<20 {
			sizes = append(sizes, n*3/2)
		}
	}
	return sizes
}

// NewSweep returns one that begins now.
func NewSweep(version string, arguments []string, transport string) *Sweep {
	now := time.Now()
	return &Sweep{Time: Timestamp{now.UTC().Format(time.RFC1123), now.Unix()}, Version: version, System: System(), Arguments: arguments, Transport: transport}
}

// Add adds a size.
func (s *Sweep) Add(size int, t *meter.Times) {
	p := SweepPoint{Size: size, Seconds: t.At(50).Seconds() / 2, Latency: LatencyOf(t)}
	if p.Seconds > 0 {
		p.Mbps = float64(size) * 8 / 1e6 / p.Seconds
	}
	s.Points = append(s.Points, p)
}

// Line returns the last size as NetPIPE's file has it.
func (s *Sweep) Line() string {
	p := s.Points[len(s.Points)-1]
	return fmt.Sprintf("%8d %12.6f %12.9f\n", p.Size, p.Mbps, p.Seconds)
}

// End sets the error that ended the sweep early.
func (s *Sweep) End(err error) {
	if err != nil {
		s.Error = err.Error()
	}
}

// JSON writes the sweep as JSON.
func (s *Sweep) JSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "\t")
	return enc.Encode(s)
}

// CrossoverText says from which size on an engine copies, or returns "" where there is none.
func (s *Sweep) CrossoverText() string {
	var b strings.Builder
	for _, c := range s.Crossovers {
		if c.Threshold > 0 {
			fmt.Fprintf(&b, "To %s: from %s on the device's engine copies.\n", c.Peer, meter.SizeText(c.Threshold))
		} else {
			fmt.Fprintf(&b, "To %s: the device's engine is never faster.\n", c.Peer)
		}
	}
	return b.String()
}
