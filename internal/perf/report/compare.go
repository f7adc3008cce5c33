package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/ntbnet/ntbnet/internal/perf/meter"
)

// Comparison has tests of several transports, which took turns in rounds.
type Comparison struct {
	Head
	Rounds  int     `json:"rounds"`
	Planned int     `json:"rounds_planned"`
	Rows    []*Row  `json:"rows"`
	Others  float64 `json:"processors_busy_with_others"` // -1 if it is not known
	Slept   float64 `json:"sdp_waits_that_slept"`        // for each round trip of the first row
	Verdict string  `json:"verdict"`

	begun     time.Time
	busy      time.Duration
	busyKnown bool
}

// Row is a test, or a limit of the machine.
type Row struct {
	Name  string           `json:"name"`
	Unit  string           `json:"unit"` // us, or GB/s
	Sides map[string]*Cell `json:"transports"`
	Limit bool             `json:"limit"`
}

// Cell is a transport in a test.
type Cell struct {
	Median  float64            `json:"median"` // of all samples
	P99     float64            `json:"p99"`    // 99 % are as good as that
	Each    []float64          `json:"median_of_each_round"`
	Faster  map[string]*Spread `json:"times_as_fast_as,omitempty"` // within each round
	Latency *Latency           `json:"times"`                      // in GB/s those of a MiB

	all    meter.Times
	rounds []time.Duration // medians; 0 where there was no time
}

// Spread is that of ratios.
type Spread = meter.Spread

// NewComparison returns one that begins now.
func NewComparison(version string, arguments []string, rounds int) *Comparison {
	c := &Comparison{Head: NewHead(version, arguments), Planned: rounds, Others: -1, begun: time.Now()}
	c.busy, c.busyKnown = meter.MachineBusy()
	return c
}

// Add adds the times of a round. side is a transport, or "" for a limit of the machine.
func (c *Comparison) Add(name, unit, side string, t *meter.Times) {
	i := slices.IndexFunc(c.Rows, func(r *Row) bool { return r.Name == name })
	if i < 0 {
		i = len(c.Rows)
		c.Rows = append(c.Rows, &Row{Name: name, Unit: unit, Sides: make(map[string]*Cell), Limit: side == ""})
	}
	row := c.Rows[i]
	if row.Sides[side] == nil {
		row.Sides[side] = &Cell{}
	}
	cell := row.Sides[side]
	cell.all.Merge(t)
	cell.rounds = append(cell.rounds, t.At(50))
}

// Finish computes what the report has. own is the processor time that the run has used itself.
func (c *Comparison) Finish(own time.Duration, err error) {
	c.Fail(err)
	if now, ok := meter.MachineBusy(); ok && c.busyKnown {
		c.Others = max(float64(now-c.busy-own)/float64(time.Since(c.begun)), 0)
	}
	for _, r := range c.Rows {
		for _, cell := range r.Sides {
			if cell.all.Count() == 0 {
				continue
			}
			cell.Median, cell.P99 = r.value(cell.all.At(50)), r.value(cell.all.At(99))
			cell.Latency = LatencyOf(&cell.all)
			for _, m := range cell.rounds {
				if m > 0 {
					cell.Each = append(cell.Each, r.value(m))
				}
			}
		}
		own := r.Sides["sdp"]
		for _, base := range []string{"tcp", "unix"} {
			if own == nil || r.Sides[base] == nil {
				continue
			}
			var ratios []float64
			for i, m := range r.Sides[base].rounds[:min(len(own.rounds), len(r.Sides[base].rounds))] {
				if m > 0 && own.rounds[i] > 0 {
					ratios = append(ratios, float64(m)/float64(own.rounds[i]))
				}
			}
			if len(ratios) > 0 {
				if own.Faster == nil {
					own.Faster = make(map[string]*Spread)
				}
				s := meter.SpreadOf(ratios)
				own.Faster[base] = &s
			}
		}
	}
	c.Verdict = c.verdict()
}

// value returns a time in the row's unit.
func (r *Row) value(d time.Duration) float64 {
	if r.Unit == "GB/s" {
		return (1 << 20) / float64(d)
	}
	return Micros(d)
}

// verdict says in a sentence what the ratios to TCP say.
func (c *Comparison) verdict() string {
	var faster, slower, open []string
	var best []float64
	for _, r := range c.Rows {
		if r.Limit || r.Sides["sdp"] == nil || r.Sides["sdp"].Faster["tcp"] == nil {
			continue
		}
		switch s := r.Sides["sdp"].Faster["tcp"]; {
		case s.Min > 1:
			faster, best = append(faster, r.Name), append(best, s.Median)
		case s.Max < 1:
			slower = append(slower, r.Name)
		default:
			open = append(open, r.Name)
		}
	}
	n := len(faster) + len(slower) + len(open)
	if n == 0 {
		return "nothing was measured of both SDP and TCP"
	}
	text := fmt.Sprintf("SDP was faster than TCP in each round in %d of %d tests", len(faster), n)
	if len(best) > 0 {
		text += fmt.Sprintf(", %s to %s times", Number(slices.Min(best)), Number(slices.Max(best)))
	}
	if len(slower) > 0 {
		text += "; slower in each round: " + strings.Join(slower, "; ")
	}
	if len(open) > 0 {
		text += "; rounds differ: " + strings.Join(open, "; ")
	}
	return text + "."
}

// unsteady is the ratio between the medians of rounds from which on the report names a side.
const unsteady = 1.5

// Busy is how many processors others keep busy from which on the report says so.
const Busy = 0.2

// Text writes the comparison as a table of 80 columns, with what is to be known of it.
func (c *Comparison) Text(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %d processors. %d of %d rounds.\n", c.System, c.CPUs, c.Rounds, c.Planned)
	if c.Error != "" {
		fmt.Fprintf(&b, "Ended early: %s\n", c.Error)
	}
	b.WriteString("\n" + c.table().String() + "\n")
	say := func(format string, args ...any) { b.WriteString(wrap(fmt.Sprintf(format, args...), 80) + "\n") }
	if c.Verified > 0 {
		say("Verified first: each byte of %s each way by each transport; then each answer.", meter.SizeText(int(c.Verified)))
	}
	say("Figures: the median of all samples; 99 %% are as good as p99. Ratio to TCP: median and extremes of the rounds; 2.00 is twice as fast. Limits: two threads that poll; two copies.")
	for _, line := range c.unsteadies() {
		say("Unsteady, rounds differ: %s", line)
	}
	switch {
	case c.Others >= Busy:
		say("Busy: others used %.1f of %d processors. A side without a processor of its own sleeps in place of polling, so SDP's short waits take as long as TCP's, or longer.", c.Others, c.CPUs)
	case c.Others >= 0:
		say("Others used %.1f of %d processors.", c.Others, c.CPUs)
	}
	if c.Slept >= 0.1 {
		say("SDP's sides slept %s times for each round trip of the first row.", Number(c.Slept))
	}
	say("Verdict: %s", c.Verdict)
	_, err := io.WriteString(w, b.String())
	return err
}

func (c *Comparison) table() Table {
	t := Table{{"", "sdp", "p99", "tcp", "p99", "unix", "p99", "to TCP (rounds)"}}
	for _, r := range c.Rows {
		row := []string{r.Name + ", " + strings.Replace(r.Unit, "us", "µs", 1)}
		sides := meter.Transports
		if r.Limit {
			sides = []string{""}
		}
		for _, side := range sides {
			cell := r.Sides[side]
			if cell == nil || cell.all.Count() == 0 {
				row = append(row, "-", "-")
				continue
			}
			row = append(row, Number(cell.Median), Number(cell.P99))
		}
		if own := r.Sides["sdp"]; own != nil && own.Faster["tcp"] != nil {
			s := own.Faster["tcp"]
			row = append(row, fmt.Sprintf("%s (%s..%s)", Number(s.Median), Number(s.Min), Number(s.Max)))
		}
		t = append(t, row)
	}
	return t
}

// unsteadies names each side whose rounds differ much.
func (c *Comparison) unsteadies() (lines []string) {
	for _, side := range slices.Concat(meter.Transports, []string{""}) {
		var of []string
		for _, r := range c.Rows {
			if cell := r.Sides[side]; cell != nil && len(cell.Each) > 1 {
				if by := slices.Max(cell.Each) / slices.Min(cell.Each); by >= unsteady {
					of = append(of, fmt.Sprintf("%s (%sx)", r.Name, Number(by)))
				}
			}
		}
		if len(of) > 0 {
			name := side
			if side == "" {
				name = "the machine"
			}
			lines = append(lines, name+": "+strings.Join(of, ", "))
		}
	}
	return lines
}

// wrap breaks a text into lines.
func wrap(text string, width int) string {
	var b strings.Builder
	n := 0
	for i, word := range strings.Fields(text) {
		switch size := len([]rune(word)); {
		case i == 0:
			n = size
		case n+1+size > width:
			b.WriteString("\n  ")
			n = 2 + size
		default:
			b.WriteByte(' ')
			n += 1 + size
		}
		b.WriteString(word)
	}
	return b.String()
}

// Picture draws the ratios of the comparison.
func (c *Comparison) Picture() Chart {
	chart := Chart{Title: "SDP beside TCP and Unix sockets", X: "tests, see below", Y: "times as fast; medians of the rounds", Linear: true}
	tcp, unix := Line{Name: "as TCP", Dots: true}, Line{Name: "as a Unix socket", Dots: true}
	var names []string
	for i, r := range c.Rows {
		if r.Sides["sdp"] == nil {
			continue
		}
		chart.XTicks = append(chart.XTicks, Tick{float64(i + 1), fmt.Sprint(i + 1)})
		names = append(names, fmt.Sprintf("%d: %s", i+1, r.Name))
		for base, l := range map[string]*Line{"tcp": &tcp, "unix": &unix} {
			if s := r.Sides["sdp"].Faster[base]; s != nil {
				l.Points = append(l.Points, [2]float64{float64(i + 1), s.Median})
			}
		}
	}
	chart.Lines = []Line{tcp, unix}
	for names := range slices.Chunk(names, 3) {
		chart.Lines = append(chart.Lines, Line{Name: strings.Join(names, ";  ")})
	}
	return chart
}
