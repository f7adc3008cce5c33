package main

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strings"
)

// circle is a picture of nodes on a circle, with lines between them. The first node
// is at the top, and the others follow clockwise.
type circle struct {
	Title string
	Nodes []circleNode
	Edges []edge
	Notes []string // lines of text below
}

// circleNode is a node and its state.
type circleNode struct {
	Name string
	Note string // below the name
	mark mark
}

// edge joins two nodes, given by their indexes in circle.Nodes.
type edge struct {
	From, To int
	Note     string
	mark     mark
}

// mark is the state of a node or edge. It is drawn as a colour and as a kind of
// line.
type mark int

// Marks.
const (
	good    mark = iota // a full line
	bad                 // a thick broken line
	missing             // a thin dotted line
)

func (m mark) stroke() string {
	switch m {
	case good:
		return `stroke="#009e73" stroke-width="3"`
	case bad:
		return `stroke="#d55e00" stroke-width="4" stroke-dasharray="10 6"`
	}
	return `stroke="#999" stroke-width="1.5" stroke-dasharray="2 5"`
}

// Coordinates in the picture of a circle, in pixels.
const (
	circleSize = 640
	circleTop  = 40
	circleBend = 0.18 // of the distance, for a second edge between the same nodes
	nodeRadius = 40
	noteHeight = 16
)

// writeCircle writes the picture as SVG.
func writeCircle(w io.Writer, c circle) error {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="sans-serif" font-size="12">`+"\n",
		circleSize, circleTop+circleSize+noteHeight*(len(c.Notes)+1))
	b.WriteString(`<rect width="100%" height="100%" fill="white"/>` + "\n")
	text(&b, circleSize/2, 24, "middle", `font-size="15"`, c.Title)
	seen := map[[2]int]bool{}
	for _, e := range c.Edges {
		// If there are two edges between the same nodes, both are bent, one to each
		// side.
		pair := [2]int{min(e.From, e.To), max(e.From, e.To)}
		double := c.count(pair) > 1
		c.draw(&b, e, double, seen[pair])
		seen[pair] = true
	}
	for i, n := range c.Nodes {
		x, y := c.centre(i)
		fmt.Fprintf(&b, `<circle cx="%s" cy="%s" r="%d" fill="white" %s/>`+"\n", fixed(x), fixed(y), nodeRadius, n.mark.stroke())
		text(&b, x, y, "middle", `font-weight="bold"`, n.Name)
		text(&b, x, y+14, "middle", `font-size="10"`, n.Note)
	}
	for i, note := range c.Notes {
		text(&b, 20, float64(circleTop+circleSize+noteHeight*i), "start", "", note)
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func (c circle) count(pair [2]int) (n int) {
	for _, e := range c.Edges {
		if pair == [2]int{min(e.From, e.To), max(e.From, e.To)} {
			n++
		}
	}
	return n
}

// centre returns the centre of a node.
func (c circle) centre(i int) (x, y float64) {
	angle := 2*math.Pi*float64(i)/float64(len(c.Nodes)) - math.Pi/2
	const radius = circleSize/2 - nodeRadius - 30
	return circleSize/2 + radius*math.Cos(angle), circleTop + circleSize/2 + radius*math.Sin(angle)
}

func (c circle) draw(b *strings.Builder, e edge, double, second bool) {
	x1, y1 := c.centre(e.From)
	x2, y2 := c.centre(e.To)
	mx, my := (x1+x2)/2, (y1+y2)/2
	if double {
		bend := circleBend
		if second != (e.From > e.To) { // the side must not depend on the order of the ends
			bend = -bend
		}
		mx, my = mx+bend*(y2-y1), my-bend*(x2-x1)
	}
	fmt.Fprintf(b, `<path fill="none" %s d="M%s,%s Q%s,%s %s,%s"/>`+"\n",
		e.mark.stroke(), fixed(x1), fixed(y1), fixed(2*mx-(x1+x2)/2), fixed(2*my-(y1+y2)/2), fixed(x2), fixed(y2))
	// A white outline keeps lines from hiding the letters.
	text(b, mx, my-4, "middle", `font-size="10" stroke="white" stroke-width="4" paint-order="stroke"`, e.Note)
}

// text writes s, which may contain any characters.
func text(b *strings.Builder, x, y float64, anchor, more, s string) {
	fmt.Fprintf(b, `<text x="%s" y="%s" text-anchor="%s" %s>`, fixed(x), fixed(y), anchor, more)
	_ = xml.EscapeText(b, []byte(s)) // a strings.Builder does not fail
	b.WriteString("</text>\n")
}

func fixed(v float64) string { return fmt.Sprintf("%.1f", v) }
