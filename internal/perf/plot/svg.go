package plot

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strings"
)

// Chart is one pair of axes. Both are logarithmic, so only positive values can be
// shown. Others are left out.
type Chart struct {
	Title string
	X, Y  string // labels of the axes
	Lines []Line
	// Level, if positive, is drawn as a dashed line over the whole width.
	Level     float64
	LevelName string
}

// Line is a named line through points in ascending order of X.
type Line struct {
	Name   string
	Points []Point
}

// Point is one value.
type Point struct{ X, Y float64 }

// Places in a picture, in pixels.
const (
	chartWidth   = 460
	chartHeight  = 320
	marginLeft   = 60
	marginTop    = 64
	marginBottom = 96 // the axis and the legend
	marginRight  = 20
	panel        = marginLeft + chartWidth + marginRight
	height       = marginTop + chartHeight + marginBottom
)

// colors can be distinguished by people who see few colours. markers distinguish
// the lines without any colour.
var colors = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"}

// Write writes the charts side by side.
func Write(w io.Writer, title string, charts ...Chart) error {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="sans-serif" font-size="12">`+"\n",
		panel*len(charts), height)
	b.WriteString(`<rect width="100%" height="100%" fill="white"/>` + "\n")
	text(&b, float64(panel*len(charts))/2, 22, "middle", `font-size="15"`, title)
	for i, c := range charts {
		fmt.Fprintf(&b, `<g transform="translate(%d,%d)">`+"\n", panel*i+marginLeft, marginTop)
		c.write(&b)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func (c Chart) write(b *strings.Builder) {
	x, y := c.axes()
	text(b, chartWidth/2, -10, "middle", `font-weight="bold"`, c.Title)
	x.writeTicks(b, true)
	y.writeTicks(b, false)
	fmt.Fprintf(b, `<rect width="%d" height="%d" fill="none" stroke="black"/>`+"\n", chartWidth, chartHeight)
	text(b, chartWidth/2, chartHeight+36, "middle", "", c.X)
	text(b, 0, -10, "end", "", c.Y)
	if c.Level > 0 {
		at := y.place(c.Level)
		fmt.Fprintf(b, `<line x1="0" x2="%d" y1="%s" y2="%[2]s" stroke="#666" stroke-dasharray="6 4"/>`+"\n", chartWidth, fixed(at))
		text(b, chartWidth-4, at-4, "end", `fill="#666"`, c.LevelName)
	}
	for i, l := range c.Lines {
		l.write(b, x, y, i)
		c.legend(b, i)
	}
}

// legend writes the name of a line below the chart, three in a row.
func (c Chart) legend(b *strings.Builder, i int) {
	x, y := float64(i%3)*chartWidth/3, float64(chartHeight+58+18*(i/3))
	fmt.Fprintf(b, `<line x1="%s" x2="%s" y1="%s" y2="%[3]s" stroke="%s" stroke-width="2"/>`+"\n",
		fixed(x), fixed(x+24), fixed(y), color(i))
	marker(b, x+12, y, i)
	text(b, x+30, y+4, "start", "", c.Lines[i].Name)
}

func (l Line) write(b *strings.Builder, x, y axis, i int) {
	var path strings.Builder
	for _, p := range l.Points {
		if !p.positive() {
			continue
		}
		fmt.Fprintf(&path, "%s,%s ", fixed(x.place(p.X)), fixed(y.place(p.Y)))
	}
	fmt.Fprintf(b, `<polyline fill="none" stroke="%s" stroke-width="2" points="%s"/>`+"\n", color(i), strings.TrimSpace(path.String()))
	for _, p := range l.Points {
		if p.positive() {
			marker(b, x.place(p.X), y.place(p.Y), i)
		}
	}
}

// marker draws the shape of line i.
func marker(b *strings.Builder, x, y float64, i int) {
	at := fmt.Sprintf(`transform="translate(%s,%s)" fill="%s"`, fixed(x), fixed(y), color(i))
	switch i % 4 {
	case 0:
		fmt.Fprintf(b, `<circle r="4" %s/>`+"\n", at)
	case 1:
		fmt.Fprintf(b, `<rect x="-3.5" y="-3.5" width="7" height="7" %s/>`+"\n", at)
	case 2:
		fmt.Fprintf(b, `<path d="M0,-5 L4.5,3.5 L-4.5,3.5 Z" %s/>`+"\n", at)
	case 3:
		fmt.Fprintf(b, `<path d="M0,-5 L5,0 L0,5 L-5,0 Z" %s/>`+"\n", at)
	}
}

func color(i int) string { return colors[i%len(colors)] }

func (p Point) positive() bool { return p.X > 0 && p.Y > 0 }

// text writes s, which may contain any characters.
func text(b *strings.Builder, x, y float64, anchor, more, s string) {
	fmt.Fprintf(b, `<text x="%s" y="%s" text-anchor="%s" %s>`, fixed(x), fixed(y), anchor, more)
	_ = xml.EscapeText(b, []byte(s)) // a strings.Builder does not fail
	b.WriteString("</text>\n")
}

func fixed(v float64) string { return fmt.Sprintf("%.1f", v) }

// axis maps values to pixels. Both ends are powers of its base.
type axis struct {
	base     float64
	from, to int // exponents, from < to
	length   float64
	up       bool // pixels count down where values count up
	label    func(float64) string
}

// axes returns axes as long as the values need.
func (c Chart) axes() (x, y axis) {
	var xs, ys []float64
	for _, l := range c.Lines {
		for _, p := range l.Points {
			if p.positive() {
				xs, ys = append(xs, p.X), append(ys, p.Y)
			}
		}
	}
	if c.Level > 0 {
		ys = append(ys, c.Level)
	}
	x = newAxis(4, xs, chartWidth)
	x.label = bytesText
	y = newAxis(10, ys, chartHeight)
	y.up, y.label = true, func(v float64) string { return fmt.Sprintf("%g", v) }
	return x, y
}

func newAxis(base float64, values []float64, length float64) axis {
	a := axis{base: base, length: length, to: 1}
	for i, v := range values {
		exp := math.Log(v) / math.Log(base)
		low, high := int(math.Floor(exp+1e-9)), int(math.Ceil(exp-1e-9))
		if i == 0 {
			a.from, a.to = low, high
		}
		a.from, a.to = min(a.from, low), max(a.to, high)
	}
	a.to = max(a.to, a.from+1)
	return a
}

func (a axis) place(v float64) float64 {
	part := (math.Log(v)/math.Log(a.base) - float64(a.from)) / float64(a.to-a.from)
	if a.up {
		part = 1 - part
	}
	return part * a.length
}

// writeTicks draws the grid and its labels.
func (a axis) writeTicks(b *strings.Builder, horizontal bool) {
	for e := a.from; e <= a.to; e++ {
		v := math.Pow(a.base, float64(e))
		at := a.place(v)
		if horizontal {
			fmt.Fprintf(b, `<line x1="%s" x2="%[1]s" y1="0" y2="%d" stroke="#ddd"/>`+"\n", fixed(at), chartHeight)
			text(b, at, chartHeight+16, "middle", "", a.label(v))
			continue
		}
		fmt.Fprintf(b, `<line x1="0" x2="%d" y1="%s" y2="%[2]s" stroke="#ddd"/>`+"\n", chartWidth, fixed(at))
		text(b, -6, at+4, "end", "", a.label(v))
	}
}

// bytesText returns a text that is short enough for a tick.
func bytesText(v float64) string {
	for _, u := range []struct {
		size float64
		name string
	}{{1 << 20, "M"}, {1 << 10, "K"}} {
		if v >= u.size {
			return fmt.Sprintf("%g%s", v/u.size, u.name)
		}
	}
	return fmt.Sprintf("%g", v)
}
