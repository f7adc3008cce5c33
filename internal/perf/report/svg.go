package report

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ntbnet/ntbnet/internal/perf/meter"
)

// Chart is a picture: lines over two logarithmic axes. Values that are not positive are left out.
type Chart struct {
	Title, X, Y string
	Linear      bool   // the horizontal axis is; XTicks says how long it is
	XTicks      []Tick // names of the horizontal axis
	Lines       []Line
}

// Tick is a named place of an axis.
type Tick struct {
	At   float64
	Name string
}

// tick returns the place of a number, named without an exponent if there is room.
func tick(v float64) Tick {
	name := strconv.FormatFloat(v, 'f', -1, 64)
	if len(name)*letterWidth > marginLeft {
		name = fmt.Sprintf("%.4g", v)
	}
	return Tick{v, name}
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

// SVG returns the picture. No text is over another one: names of ticks that have no room are
// left out, and the legend has a line for each name.
func (c Chart) SVG() []byte {
	var b bytes.Buffer
	put := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	text := func(x, y float64, anchor, s string, width int) {
		if r := []rune(s); len(r)*letterWidth > width {
			s = string(r[:width/letterWidth-1]) + "…"
		}
		put(`<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, x, y, anchor, html.EscapeString(s))
	}
	width, height := marginLeft+chartWidth+marginRight, marginTop+chartHeight+axisHeight+legendHeight*len(c.Lines)
	put(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d" style="max-width:100%%;height:auto" font-family="sans-serif" font-size="13">`, width, height)
	put(`<rect width="100%%" height="100%%" fill="white"/>`)
	put(`<g transform="translate(%d,%d)">`, marginLeft, marginTop)
	text(chartWidth/2, 26-marginTop, "middle", c.Title, chartWidth)
	text(0, -16, "start", c.Y, chartWidth)
	x, y := c.axis(0), c.axis(1)
	end := float64(-marginLeft)
	for _, t := range x.ticks {
		at, half := x.place(t.At), float64(len(t.Name)*letterWidth)/2
		put(`<path d="M%.1f,0V%d" stroke="#ddd"/>`, at, chartHeight)
		if at-half >= end && at+half <= chartWidth+marginRight { // else there is no room for the name
			text(at, chartHeight+20, "middle", t.Name, chartWidth)
			end = at + half
		}
	}
	end = math.Inf(1)
	for _, t := range y.ticks {
		at := chartHeight - y.place(t.At)
		put(`<path d="M0,%.1fH%d" stroke="#ddd"/>`, at, chartWidth)
		if at+8 <= end {
			text(-8, at+4, "end", t.Name, marginLeft)
			end = at - 8
		}
	}
	put(`<rect width="%d" height="%d" fill="none" stroke="black"/>`, chartWidth, chartHeight)
	text(chartWidth/2, chartHeight+46, "middle", c.X, chartWidth)
	for i, l := range c.Lines {
		color, mark := colors[i%len(colors)], marks[i%len(marks)]
		var path []string
		for _, p := range l.Points {
			if x.has(p[0]) && y.has(p[1]) {
				px, py := x.place(p[0]), chartHeight-y.place(p[1])
				path = append(path, fmt.Sprintf("%.1f,%.1f", px, py))
				put(`<path transform="translate(%.1f,%.1f)" d="%s" fill="%s"/>`, px, py, mark, color)
			}
		}
		if !l.Dots {
			put(`<polyline fill="none" stroke="%s" stroke-width="2" points="%s"/>`, color, strings.Join(path, " "))
		}
		row := chartHeight + axisHeight + legendHeight*i
		if len(l.Points) > 0 {
			put(`<path transform="translate(6,%d)" d="%s" fill="%s"/>`, row, mark, color)
		}
		text(20, float64(row)+5, "start", l.Name, chartWidth)
	}
	put("</g>\n</svg>")
	return b.Bytes()
}

// axis maps values to pixels. low and high are logarithms, unless it is linear.
type axis struct {
	low, high, length float64
	linear            bool
	ticks             []Tick
}

// value returns what is drawn of a value: its logarithm, unless the axis is linear.
func (a axis) value(v float64) float64 {
	if a.linear {
		return v
	}
	return math.Log10(v)
}

// has returns whether a value has a place.
func (a axis) has(v float64) bool { return !math.IsNaN(a.value(v)) && !math.IsInf(a.value(v), 0) }

func (a axis) place(v float64) float64 { return (a.value(v) - a.low) / (a.high - a.low) * a.length }

// axis returns the horizontal axis (0) or the vertical one (1), as long as the values need. One without
// names has them at powers of ten.
func (c Chart) axis(which int) axis {
	a := axis{length: chartHeight, low: math.Inf(1), high: math.Inf(-1)}
	if which == 0 {
		a.length, a.linear, a.ticks = chartWidth, c.Linear, c.XTicks
	}
	include := func(v float64) {
		if a.has(v) {
			a.low, a.high = min(a.low, a.value(v)), max(a.high, a.value(v))
		}
	}
	for _, l := range c.Lines {
		for _, p := range l.Points {
			include(p[which])
		}
	}
	for _, t := range a.ticks {
		include(t.At)
	}
	if a.low > a.high {
		a.low, a.high = 0, 1
	}
	if !a.linear {
		a.low, a.high = math.Floor(a.low+1e-9), math.Ceil(a.high-1e-9)
	}
	a.high = max(a.high, a.low+1)
	if a.ticks == nil {
		for e := a.low; e <= a.high; e++ {
			a.ticks = append(a.ticks, tick(math.Pow10(int(e))))
		}
	}
	return a
}

// Picture draws a run: Bandwidth by time, others by percentile.
func Picture(r *meter.Result) Chart {
	c := Chart{Title: fmt.Sprintf("%s by %s, %s, streams: %d", r.Test, r.Transport, meter.SizeText(r.Size), r.Streams)}
	if r.Test == meter.Bandwidth || r.Test == meter.Idle {
		c.X, c.Y, c.Linear, c.XTicks = "seconds", "Gbit/s", true, []Tick{{0, "0"}}
		c.Lines = []Line{{Name: "sent here"}, {Name: "received here"}}
		for _, in := range r.Intervals {
			for i := range c.Lines {
				if sum, n := total(in.Streams, i == 0); n > 0 {
					rate := float64(sum.Bytes) * 8 / 1e9 / (in.End - in.Start).Seconds()
					c.Lines[i].Points = append(c.Lines[i].Points, [2]float64{in.End.Seconds(), rate})
				}
			}
			c.XTicks = append(c.XTicks, tick(in.End.Round(10*time.Millisecond).Seconds()))
		}
		c.Lines = slices.DeleteFunc(c.Lines, func(l Line) bool { return len(l.Points) == 0 })
		return c
	}
	c.X, c.Y = "percentile", "µs"
	for _, p := range append([]float64{0}, meter.Percentiles...) { // a percentile p is at 100/(100-p)
		c.XTicks = append(c.XTicks, Tick{100 / (100 - p), fmt.Sprintf("%g", p)})
	}
	names := []string{r.Test, r.Test + ", since it began"} // in Loaded the first is since it was due
	for i, t := range []*meter.Times{Times(r), &r.Here.Sent} {
		l := Line{Name: names[i]}
		for at := 1.0; at <= 1e5*1.01 && at <= float64(t.Count()); at *= math.Pow(10, 0.1) {
			l.Points = append(l.Points, [2]float64{at, meter.Micros(t.At(100 - 100/at))})
		}
		if t.Count() > 0 {
			c.Lines = append(c.Lines, l)
		}
	}
	return c
}
