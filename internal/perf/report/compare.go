package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

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
}

// Cell is a transport in a test.
type Cell struct {
	Median float64            `json:"median"` // of all samples
	P99    float64            `json:"p99"`    // 99 % are as good as that
	Each   []float64          `json:"median_of_each_round"`
	Faster map[string]*Spread `json:"times_as_fast_as,omitempty"` // within each round
	Times  meter.Times        `json:"times"`                      // in GB/s those of a MiB

	rounds []time.Duration // medians; 0 where there was no time
}

// Spread is the median of some figures, and the extremes.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// NewComparison returns one that begins now.
func NewComparison(head Head, rounds int) *Comparison {
	c := &Comparison{Head: head, Planned: rounds, Others: -1, begun: time.Now()}
	c.busy, c.busyKnown = meter.MachineBusy()
	return c
}

// Limit is the side of a row that is a limit of the machine.
const Limit = "machine"

// Add adds the times of a round. side is a transport, or Limit.
func (c *Comparison) Add(name, unit, side string, t *meter.Times) {
	i := slices.IndexFunc(c.Rows, func(r *Row) bool { return r.Name == name })
	if i < 0 {
		i = len(c.Rows)
		c.Rows = append(c.Rows, &Row{Name: name, Unit: unit, Sides: make(map[string]*Cell)})
	}
	row := c.Rows[i]
	cell := row.Sides[side]
	if cell == nil {
		cell = &Cell{}
		row.Sides[side] = cell
	}
	cell.Times.Merge(t)
	cell.rounds = append(cell.rounds, t.At(50))
	if t.Count() > 0 {
		cell.Each = append(cell.Each, row.value(t.At(50)))
	}
}

// Finish computes what the report has. own is the processor time that the run has used itself.
func (c *Comparison) Finish(own time.Duration, err error) {
	c.Fail(err)
	if now, ok := meter.MachineBusy(); ok && c.busyKnown {
		c.Others = max(float64(now-c.busy-own)/float64(time.Since(c.begun)), 0)
	}
	for _, r := range c.Rows {
		for _, cell := range r.Sides {
			if cell.Times.Count() > 0 {
				cell.Median, cell.P99 = r.value(cell.Times.At(50)), r.value(cell.Times.At(99))
			}
		}
		if own := r.Sides["sdp"]; own != nil {
			own.Faster = map[string]*Spread{"tcp": own.faster(r.Sides["tcp"]), "unix": own.faster(r.Sides["unix"])}
		}
	}
	c.Verdict = c.verdict()
}

// value returns a time in the row's unit.
func (r *Row) value(d time.Duration) float64 {
	if r.Unit == "GB/s" {
		return (1 << 20) / float64(d)
	}
	return meter.Micros(d)
}

// faster returns the ratios to another transport, or nil if no round has both.
func (c *Cell) faster(than *Cell) *Spread {
	var ratios []float64
	for i, m := range c.rounds {
		if than != nil && i < len(than.rounds) && m > 0 && than.rounds[i] > 0 {
			ratios = append(ratios, float64(than.rounds[i])/float64(m))
		}
	}
	n := len(ratios)
	if n == 0 {
		return nil
	}
	slices.Sort(ratios)
	return &Spread{Median: (ratios[(n-1)/2] + ratios[n/2]) / 2, Min: ratios[0], Max: ratios[n-1]}
}

// toTCP returns the ratios of a row, or nil.
func (r *Row) toTCP() *Spread {
	if own := r.Sides["sdp"]; own != nil {
		return own.Faster["tcp"]
	}
	return nil
}

// verdict says in a sentence what the ratios to TCP say.
func (c *Comparison) verdict() string {
	var faster, slower, open []string
	var best []float64
	for _, r := range c.Rows {
		switch s := r.toTCP(); {
		case s == nil:
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
		least, most := Number(slices.Min(best)), Number(slices.Max(best))
		if text += ", " + least; most != least {
			text += " to " + most
		}
		text += " times"
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

// busy is how many processors others keep busy from which on the report says so.
const busy = 0.2

// Text writes the comparison as a table of 80 columns, with what is to be known of it.
func (c *Comparison) Text(w io.Writer) error {
	var b strings.Builder
	say := func(format string, args ...any) { b.WriteString(wrap(fmt.Sprintf(format, args...)) + "\n") }
	say("%s, %d processors. %d of %d rounds.", c.System, c.CPUs, c.Rounds, c.Planned)
	if c.Error != "" {
		say("Ended early: %s", c.Error)
	}
	const columns = "%-21s%6s%6s%6s%6s%6s%6s  %s\n"
	fmt.Fprintf(&b, "\n"+columns, "", "sdp", "p99", "tcp", "p99", "unix", "p99", "to TCP (rounds)")
	for _, r := range c.Rows {
		row := []any{r.Name + ", " + strings.Replace(r.Unit, "us", "µs", 1), "", "", "", "", "", "", ""}
		sides := meter.Transports
		if r.Sides[Limit] != nil {
			sides = []string{Limit}
		}
		for i, side := range sides {
			row[1+2*i], row[2+2*i] = "-", "-"
			if cell := r.Sides[side]; cell != nil && cell.Times.Count() > 0 {
				row[1+2*i], row[2+2*i] = short(cell.Median), short(cell.P99)
			}
		}
		if s := r.toTCP(); s != nil {
			row[7] = fmt.Sprintf("%s (%s..%s)", short(s.Median), short(s.Min), short(s.Max))
		}
		b.WriteString(strings.TrimRight(fmt.Sprintf(columns, row...), " \n") + "\n")
	}
	b.WriteString("\n")
	if c.Verified > 0 {
		say("Verified first: each byte of %s each way by each transport; then each answer.", meter.SizeText(int(c.Verified)))
	}
	say("Figures: the median of all samples; 99 %% are as good as p99. Ratio to TCP: median and extremes of the rounds; 2.00 is twice as fast. Limits: two threads that poll; two copies.")
	for _, line := range c.unsteadies() {
		say("Unsteady, rounds differ: %s", line)
	}
	switch {
	case c.Others >= busy:
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

// unsteadies names each side whose rounds differ much.
func (c *Comparison) unsteadies() (lines []string) {
	for _, side := range append(meter.Transports, Limit) {
		var of []string
		for _, r := range c.Rows {
			if cell := r.Sides[side]; cell != nil && len(cell.Each) > 1 {
				if by := slices.Max(cell.Each) / slices.Min(cell.Each); by >= unsteady {
					of = append(of, fmt.Sprintf("%s (%sx)", r.Name, Number(by)))
				}
			}
		}
		if len(of) > 0 {
			lines = append(lines, side+": "+strings.Join(of, ", "))
		}
	}
	return lines
}

// wrap breaks a text into lines of 80 columns.
func wrap(text string) string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > 80 {
			lines, line = append(lines, line), " "
		}
		line += " " + word
	}
	return strings.TrimPrefix(strings.Join(append(lines, line), "\n"), " ")
}

// Picture draws the ratios of the comparison.
func (c *Comparison) Picture() Chart {
	chart := Chart{Title: "SDP beside TCP and Unix sockets", X: "tests, see below", Y: "times as fast; medians of the rounds", Linear: true}
	lines := []Line{{Name: "as TCP", Dots: true}, {Name: "as a Unix socket", Dots: true}}
	var names []string
	for i, r := range c.Rows {
		if r.Sides["sdp"] == nil {
			continue
		}
		at := float64(i + 1)
		chart.XTicks = append(chart.XTicks, Tick{at, fmt.Sprint(i + 1)})
		names = append(names, fmt.Sprintf("%d: %s", i+1, r.Name))
		for k, base := range []string{"tcp", "unix"} {
			if s := r.Sides["sdp"].Faster[base]; s != nil {
				lines[k].Points = append(lines[k].Points, [2]float64{at, s.Median})
			}
		}
	}
	for names := range slices.Chunk(names, 3) {
		lines = append(lines, Line{Name: strings.Join(names, ";  ")})
	}
	chart.Lines = lines
	return chart
}
