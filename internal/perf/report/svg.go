package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/ntbnet/ntbnet/internal/perf/meter"
)

// Chart is a picture: lines over an axis. Values of a logarithmic axis that are not positive are left
// out.
type Chart struct {
	Title, X, Y string
	XLog, YLog  bool
	XTicks      []Tick // where the axis has names of its own
	Lines       []Line
}

// Tick is a named place of an axis.
type Tick struct {
	At   float64
	Name string
}

// Line is a named line; its points are in ascending order of X. Without points it is a remark.
type Line struct {
	Name   string
	Points [][2]float64
	Dots   bool // no line between the points
}

// Places in a picture, in pixels. A letter takes at most letterWidth.
const (
	letterWidth  = 8
	chartWidth   = 640
	chartHeight  = 320
	marginLeft   = 84
	marginTop    = 76
	marginRight  = 40
	axisHeight   = 64
	legendHeight = 22
)

// colors can be distinguished by people who see few colours. marks distinguish the lines without any.
var (
	colors = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#000000"}
	marks  = []string{"M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0", "M-4,-4h8v8h-8z", "M0,-5L5,4L-5,4z", "M0,-5L5,0L0,5L-5,0z"}
)

// Write writes the picture as SVG. No text is over another one: names of ticks that have no room are
// left out, and the legend has a line for each name.
func (c Chart) Write(w io.Writer) error {
	var b strings.Builder
	width, height := marginLeft+chartWidth+marginRight, marginTop+chartHeight+axisHeight+legendHeight*len(c.Lines)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d" style="max-width:100%%;height:auto" font-family="sans-serif" font-size="13">`+"\n", width, height)
	b.WriteString(`<rect width="100%" height="100%" fill="white"/>` + "\n")
	text(&b, float64(width)/2, 26, "middle", ` font-size="15"`, fit(c.Title, width-20))
	text(&b, marginLeft, marginTop-16, "start", "", fit(c.Y, chartWidth))
	fmt.Fprintf(&b, `<g transform="translate(%d,%d)">`+"\n", marginLeft, marginTop)
	x, y := c.axis(0), c.axis(1)
	end := math.Inf(-1)
	for _, t := range x.ticks {
		at, half := x.place(t.At), float64(len(t.Name)*letterWidth)/2
		fmt.Fprintf(&b, `<path d="M%.1f,0V%d" stroke="#ddd"/>`+"\n", at, chartHeight)
		if at-half < end || at+half > chartWidth+marginRight || at-half < -marginLeft {
			continue // no room for the name
		}
		text(&b, at, chartHeight+20, "middle", "", t.Name)
		end = at + half
	}
	end = math.Inf(1)
	for _, t := range y.ticks {
		at := chartHeight - y.place(t.At)
		fmt.Fprintf(&b, `<path d="M0,%.1fH%d" stroke="#ddd"/>`+"\n", at, chartWidth)
		if at+8 > end {
			continue
		}
		text(&b, -8, at+4, "end", "", t.Name)
		end = at - 8
	}
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="none" stroke="black"/>`+"\n", chartWidth, chartHeight)
	text(&b, chartWidth/2, chartHeight+46, "middle", "", fit(c.X, chartWidth))
	for i, l := range c.Lines {
		color, mark := colors[i%len(colors)], marks[i%len(marks)]
		var path, dots strings.Builder
		for _, p := range l.Points {
			if x.has(p[0]) && y.has(p[1]) {
				px, py := x.place(p[0]), chartHeight-y.place(p[1])
				fmt.Fprintf(&path, "%.1f,%.1f ", px, py)
				if l.Dots || len(l.Points) <= 60 {
					fmt.Fprintf(&dots, `<path transform="translate(%.1f,%.1f)" d="%s" fill="%s"/>`+"\n", px, py, mark, color)
				}
			}
		}
		if !l.Dots {
			fmt.Fprintf(&b, `<polyline fill="none" stroke="%s" stroke-width="2" points="%s"/>`+"\n", color, strings.TrimSpace(path.String()))
		}
		b.WriteString(dots.String())
		row := chartHeight + axisHeight + legendHeight*i
		if len(l.Points) > 0 {
			fmt.Fprintf(&b, `<path transform="translate(6,%d)" d="%s" fill="%s"/>`+"\n", row, mark, color)
		}
		text(&b, 20, float64(row)+5, "start", "", fit(l.Name, chartWidth))
	}
	b.WriteString("</g>\n</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// fit cuts a text that has no room.
func fit(s string, width int) string {
	if r := []rune(s); len(r)*letterWidth > width {
		return string(r[:width/letterWidth-1]) + "…"
	}
	return s
}

func text(b *strings.Builder, x, y float64, anchor, more, s string) {
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s"%s>`, x, y, anchor, more)
	_ = xml.EscapeText(b, []byte(s)) // a strings.Builder does not fail
	b.WriteString("</text>\n")
}

// axis maps values to pixels.
type axis struct {
	low, high, length float64 // low and high are logarithms on a logarithmic axis
	log               bool
	ticks             []Tick
}

func (a axis) has(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) && (v > 0 || !a.log) }

func (a axis) place(v float64) float64 {
	if a.log {
		v = math.Log10(v)
	}
	return (v - a.low) / (a.high - a.low) * a.length
}

// axis returns the horizontal axis (0) or the vertical one (1), as long as the values need.
func (c Chart) axis(which int) axis {
	a := axis{length: chartWidth, log: c.XLog}
	var ticks []Tick
	if which == 0 {
		ticks = c.XTicks
	} else {
		a.length, a.log = chartHeight, c.YLog
	}
	var all []float64
	for _, l := range c.Lines {
		for _, p := range l.Points {
			if a.has(p[which]) {
				all = append(all, p[which])
			}
		}
	}
	for _, t := range ticks {
		all = append(all, t.At)
	}
	if len(all) == 0 {
		all = []float64{1}
	}
	a.low, a.high = slices.Min(all), slices.Max(all)
	if a.log {
		a.low, a.high = math.Floor(math.Log10(a.low)+1e-9), math.Ceil(math.Log10(a.high)-1e-9)
	} else if which == 1 {
		a.low = min(a.low, 0)
	}
	if a.high <= a.low {
		a.high = a.low + 1
	}
	if ticks != nil {
		a.ticks = ticks
		return a
	}
	if a.log {
		for e := a.low; e <= a.high; e++ {
			a.ticks = append(a.ticks, Tick{math.Pow(10, e), magnitude(math.Pow(10, e))})
		}
		return a
	}
	step := math.Pow(10, math.Floor(math.Log10(a.high-a.low)))
	for _, part := range []float64{0.1, 0.2, 0.5, 1} {
		if (a.high-a.low)/(step*part) <= 6 {
			step *= part
			break
		}
	}
	if which == 1 {
		a.high = math.Ceil(a.high/step-1e-9) * step
	}
	for v := math.Ceil(a.low/step) * step; v <= a.high+step/1e6; v += step {
		a.ticks = append(a.ticks, Tick{v, magnitude(v)})
	}
	return a
}

// magnitude returns a short text for a tick.
func magnitude(v float64) string {
	for _, u := range []struct {
		size float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e4, "k"}} {
		if math.Abs(v) >= u.size {
			if u.name == "k" {
				u.size = 1e3
			}
			return fmt.Sprintf("%.4g%s", v/u.size, u.name)
		}
	}
	return fmt.Sprintf("%.4g", v)
}

// Picture draws a run: Bandwidth by time, others by percentile.
func Picture(r *meter.Result) Chart {
	title := fmt.Sprintf("%s by %s, %s, streams: %d", r.Test, r.Transport, meter.SizeText(r.Size), r.Streams)
	if r.Test == meter.Bandwidth || r.Test == meter.Idle {
		c := Chart{Title: title, X: "seconds", Y: "Gbit/s"}
		for _, sends := range []bool{true, false} {
			l := Line{Name: map[bool]string{true: "sent here", false: "received here"}[sends]}
			for _, in := range r.Intervals {
				if sum, n := total(in.Streams, sends); n > 0 {
					l.Points = append(l.Points, [2]float64{(in.Start + in.End).Seconds() / 2, float64(sum.Bytes) * 8 / 1e9 / (in.End - in.Start).Seconds()})
				}
			}
			if len(l.Points) > 0 {
				c.Lines = append(c.Lines, l)
			}
		}
		return c
	}
	c := Chart{Title: title, X: "percentile", Y: "µs", XLog: true, YLog: true}
	// A percentile p is at 100/(100-p).
	for _, p := range append([]float64{0}, meter.Percentiles...) {
		c.XTicks = append(c.XTicks, Tick{100 / (100 - p), fmt.Sprintf("%g", p)})
	}
	curve := func(name string, t *meter.Times) {
		l := Line{Name: name}
		for at := 1.0; at <= 1e5*1.01; at *= math.Pow(10, 0.1) {
			if at > float64(t.Count()) {
				break
			}
			l.Points = append(l.Points, [2]float64{at, Micros(t.At(100 - 100/at))})
		}
		c.Lines = append(c.Lines, l)
	}
	if r.Test == meter.Loaded {
		curve("since it was due", Times(r))
		curve("since it began", r.Here.Sent)
	} else {
		curve(r.Test, Times(r))
	}
	return c
}

// Picture draws the sweep.
func (s *Sweep) Picture() Chart {
	c := Chart{Title: "Round trips by size, " + s.Transport, X: "bytes", Y: "µs", XLog: true, YLog: true}
	for n := 1; n <= 8<<20; n *= 8 {
		c.XTicks = append(c.XTicks, Tick{float64(n), meter.SizeText(n)})
	}
	var p50, p99 Line
	p50.Name, p99.Name = "median", "99 % are below"
	for _, p := range s.Points {
		p50.Points = append(p50.Points, [2]float64{float64(p.Size), p.Seconds * 2e6})
		p99.Points = append(p99.Points, [2]float64{float64(p.Size), p.Latency.Percentiles["p99"]})
	}
	c.Lines = []Line{p50, p99}
	return c
}

// Picture draws the ratios of the comparison.
func (c *Comparison) Picture() Chart {
	chart := Chart{Title: "SDP beside TCP and Unix sockets", X: "tests, see below", Y: "times as fast; medians of the rounds", YLog: true}
	lines := map[string]*Line{}
	for i, r := range c.Rows {
		at := float64(i + 1)
		if r.Sides["sdp"] == nil {
			continue
		}
		chart.XTicks = append(chart.XTicks, Tick{at, fmt.Sprint(i + 1)})
		for base, s := range r.Sides["sdp"].Faster {
			if lines[base] == nil {
				lines[base] = &Line{Name: "against " + base, Dots: true}
			}
			lines[base].Points = append(lines[base].Points, [2]float64{at, s.Median})
		}
	}
	for _, base := range []string{"tcp", "unix"} {
		if lines[base] != nil {
			chart.Lines = append(chart.Lines, *lines[base])
		}
	}
	var names []string
	for i, r := range c.Rows {
		if !r.Limit {
			names = append(names, fmt.Sprintf("%d: %s", i+1, r.Name))
		}
	}
	for names := range slices.Chunk(names, 3) {
		chart.Lines = append(chart.Lines, Line{Name: strings.Join(names, ";  ")})
	}
	return chart
}
