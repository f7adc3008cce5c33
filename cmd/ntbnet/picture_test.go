package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestACircleHasEveryNodeAndEdge(t *testing.T) {
	var b bytes.Buffer
	c := circle{
		Title: "a ring <&>",
		Nodes: []circleNode{{Name: "node1"}, {Name: "node2", Note: "not there", mark: missing}, {Name: "node3", mark: bad}},
		Edges: []edge{{From: 0, To: 1, mark: missing}, {From: 1, To: 2, Note: "down", mark: bad}, {From: 2, To: 0, Note: "1.5 kB"}},
		Notes: []string{"link 2 is down"},
	}
	require.NoError(t, writeCircle(&b, c))
	wellFormed(t, b.String())
	doc := b.String()
	for _, s := range []string{"a ring &lt;&amp;&gt;", "node1", "node2", "node3", "not there", ">down<", "1.5 kB", "link 2 is down"} {
		assert.Contains(t, doc, s)
	}
	assert.Equal(t, 3, strings.Count(doc, "<circle"))
	assert.Equal(t, 3, strings.Count(doc, "<path"))
	assert.NotContains(t, doc, "%!")
	assert.NotContains(t, doc, "NaN")
	require.NoError(t, writeCircle(&b, circle{}), "nothing to draw")
	r, w := io.Pipe()
	r.Close()
	assert.ErrorIs(t, writeCircle(w, c), io.ErrClosedPipe)
}

// The two links of a ring of two must not coincide, in whatever order their ends
// are named.
func TestTwoEdgesBetweenTheSameNodesAreApart(t *testing.T) {
	paths := regexp.MustCompile(`Q(\S+) `)
	for _, second := range []edge{{From: 1, To: 0}, {From: 0, To: 1}} {
		var b strings.Builder
		c := circle{Nodes: make([]circleNode, 2), Edges: []edge{{From: 0, To: 1}, second}}
		require.NoError(t, writeCircle(&b, c))
		bends := paths.FindAllStringSubmatch(b.String(), -1)
		require.Len(t, bends, 2)
		assert.NotEqual(t, bends[0][1], bends[1][1])
	}
}

func wellFormed(t *testing.T, doc string) {
	t.Helper()
	for dec := xml.NewDecoder(strings.NewReader(doc)); ; {
		_, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
	}
}
