package selftest

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/ntbnet/ntbnet/ntb"
)

// Check is the outcome of a check. Times are in nanoseconds. What was not measured is 0.
type Check struct {
	Name           string  `json:"name"`
	Pass           bool    `json:"pass"`
	Found          string  `json:"found"` // one line
	Rounds         uint64  `json:"rounds,omitempty"`
	Lost           uint64  `json:"lost,omitempty"` // of Rounds
	Slow           uint64  `json:"slow,omitempty"` // of Rounds: doorbells that took 20 ms or longer
	BytesPerSecond float64 `json:"bytes_per_second,omitempty"`
	MedianNS       int64   `json:"median_ns,omitempty"`
	P99NS          int64   `json:"p99_ns,omitempty"`
	MaxNS          int64   `json:"max_ns,omitempty"`
}

// fail marks the check as failed. The first reason stays.
func (c *Check) fail(format string, args ...any) {
	if c.Pass {
		c.Pass, c.Found = false, fmt.Sprintf(format, args...)
	}
}

// Report is the outcome of Run.
type Report struct {
	Pass    bool      `json:"pass"` // all checks of both sides passed
	Error   string    `json:"error,omitempty"`
	Begun   time.Time `json:"begun"`
	Kernel  string    `json:"kernel"`
	CPU     string    `json:"cpu"`
	Arch    string    `json:"arch"`
	Backend string    `json:"backend"`
	Memory  string    `json:"memory"` // how the window is mapped
	Window  int       `json:"window"` // bytes
	Checks  []Check   `json:"checks"`
}

func newReport() *Report {
	r := &Report{Begun: time.Now().UTC(), Arch: runtime.GOARCH, Checks: []Check{}}
	text, _ := os.ReadFile("/proc/sys/kernel/osrelease") // "" where there is none
	r.Kernel = strings.TrimSpace(string(text))
	text, _ = os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			r.CPU = strings.TrimSpace(value)
			break
		}
	}
	return r
}

// describe notes what the wire is, and returns it as a check.
func (r *Report) describe(dev ntb.Device) Check {
	out := dev.Outbound()
	r.Backend, r.Memory, r.Window = dev.Caps().Backend, out.Kind().String(), out.Len()
	return Check{Name: "wire", Pass: true, Found: fmt.Sprintf("%s, %s memory, a window of %d KiB", r.Backend, r.Memory, r.Window>>10)}
}

// sound reports whether no check has failed.
func (r *Report) sound() bool {
	return !slices.ContainsFunc(r.Checks, func(c Check) bool { return !c.Pass })
}

func (r *Report) finish(err error) {
	r.Pass = err == nil && r.sound()
	if err != nil {
		r.Error = err.Error()
	}
}

// samples are times of rounds, exact to a thousandth. The zero value has none.
type samples struct{ h *hdrhistogram.Histogram }

func (s *samples) add(d time.Duration) {
	if s.h == nil {
		s.h = hdrhistogram.New(1, int64(MaxTime), 3)
	}
	_ = s.h.RecordValue(int64(min(d, MaxTime)))
}

// put puts the times into a check that has not failed.
func (s *samples) put(c *Check) {
	if s.h == nil {
		return
	}
	c.MedianNS, c.P99NS, c.MaxNS = s.h.ValueAtPercentile(50), s.h.ValueAtPercentile(99), s.h.Max()
	if c.Pass {
		c.Found = fmt.Sprintf("median %v, p99 %v, max %v, of %d", short(c.MedianNS), short(c.P99NS), short(c.MaxNS), s.h.TotalCount())
	}
}

// short rounds a time to three digits or four.
func short(ns int64) time.Duration {
	d, unit := time.Duration(ns), time.Duration(1)
	for d/unit >= 10000 {
		unit *= 10
	}
	return d.Round(unit)
}
