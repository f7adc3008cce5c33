package plot

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// wellFormed reads all of a document.
func wellFormed(t *testing.T, doc []byte) {
	t.Helper()
	dec := xml.NewDecoder(bytes.NewReader(doc))
	elements := 0
	for {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if _, ok := tok.(xml.StartElement); ok {
			elements++
		}
	}
	assert.Greater(t, elements, 10)
}

func TestAPictureHasEveryLineAndName(t *testing.T) {
	var b bytes.Buffer
	lines := []Line{
		{"sdp <&>", []Point{{4, 0.5}, {64, 0.5}, {4096, 1.5}}},
		{"tcp", []Point{{4, 10}, {64, 0}, {4096, 11}}},
		{"three", nil}, {"four", nil}, {"five", nil}, {"six", nil}, {"seven", nil}, {"eight", nil},
	}
	require.NoError(t, Write(&b, "a title",
		Chart{Title: "left", X: "bytes", Y: "µs", Lines: lines, Level: 0.3, LevelName: "the limit"},
		Chart{Title: "right"}))
	wellFormed(t, b.Bytes())
	doc := b.String()
	for _, s := range []string{"a title", "left", "right", "sdp &lt;&amp;&gt;", "eight", "the limit", "stroke-dasharray", "µs", ">4K<", ">0.1<", ">100<"} {
		assert.Contains(t, doc, s)
	}
	assert.NotContains(t, doc, "%!", "a wrong format")
	assert.NotContains(t, doc, "NaN")
	assert.NotContains(t, doc, "Inf")
	assert.Equal(t, 8, strings.Count(doc, "<polyline"))
}

func TestAValueThatALogarithmHasNotIsLeftOut(t *testing.T) {
	var b strings.Builder
	c := Chart{Lines: []Line{{"a", []Point{{1, 1}, {4, 0}, {16, -1}, {64, 2}}}}}
	x, y := c.axes()
	c.Lines[0].write(&b, x, y, 0)
	assert.Contains(t, b.String(), `points="0.0,320.0 460.0,`)
	assert.Equal(t, 2, strings.Count(b.String(), "<circle"))
}

func TestAnAxisEndsAtPowersOfItsBase(t *testing.T) {
	for _, c := range []struct {
		name     string
		base     float64
		values   []float64
		from, to int
	}{
		{"no values", 10, nil, 0, 1},
		{"between powers", 10, []float64{0.35, 60}, -1, 2},
		{"on powers", 10, []float64{1000, 0.001}, -3, 3},
		{"one power", 4, []float64{4}, 1, 2},
		{"one value", 10, []float64{5}, 0, 1},
	} {
		a := newAxis(c.base, c.values, 100)
		assert.Equal(t, c.from, a.from, c.name)
		assert.Equal(t, c.to, a.to, c.name)
	}
}

func TestPlacesOnAnAxis(t *testing.T) {
	right := axis{base: 4, from: 1, to: 5, length: 100}
	assert.InDelta(t, 0, right.place(4), 1e-9)
	assert.InDelta(t, 50, right.place(64), 1e-9)
	assert.InDelta(t, 100, right.place(1024), 1e-9)
	up := right
	up.up = true
	assert.InDelta(t, 100, up.place(4), 1e-9)
	assert.InDelta(t, 0, up.place(1024), 1e-9)
}

func TestTicksHaveShortNames(t *testing.T) {
	for v, want := range map[float64]string{4: "4", 256: "256", 1024: "1K", 65536: "64K", 1 << 22: "4M"} {
		assert.Equal(t, want, bytesText(v))
	}
}

func TestAWriterThatFails(t *testing.T) {
	r, w := io.Pipe()
	r.Close()
	assert.ErrorIs(t, Write(w, "t", Chart{}), io.ErrClosedPipe)
}
