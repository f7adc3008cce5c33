package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ntbnet/ntbnet/internal/fabric"
	"github.com/ntbnet/ntbnet/internal/fabrictest"
	"github.com/ntbnet/ntbnet/sdp"
)

// nodesUp opens nodes 1 to running of a ring of n, and waits for the links between
// neighbours.
func nodesUp(t *testing.T, name string, running, n int) {
	t.Helper()
	var last *sdp.Fabric
	for i := 1; i <= running; i++ {
		f, err := sdp.Open(fmt.Sprintf("%s?node=%d&nodes=%d&window=1048576", name, i, n))
		require.NoError(t, err)
		t.Cleanup(func() { f.Close() })
		ln, err := f.Listen("sdp", ":7")
		require.NoError(t, err)
		t.Cleanup(func() { ln.Close() })
		if last != nil {
			c, err := last.Dial("sdp", fmt.Sprintf("node%d:7", i))
			require.NoError(t, err)
			c.Close()
		}
		last = f
	}
}

func TestTopologyOfARing(t *testing.T) {
	name := "ring:" + fabrictest.Name(t)
	nodesUp(t, name, 3, 4)
	picture := filepath.Join(t.TempDir(), "ring.svg")
	p := newProgram(t, []string{"SDP_FABRIC=" + name}, "topology", "--svg", picture)
	require.Zero(t, p.run(t), p.stderr.String())
	text := p.stdout.String()
	for _, s := range []string{
		name + ": a ring of 4 nodes, 3 running here, lanes=1\n",
		"node1", "2:right/1", "1:left/1 3:right/1", "node4   not there", "node1 - node2   up", "node3 - node4   absent",
	} {
		assert.Contains(t, text, s)
	}
	for _, line := range strings.Split(text, "\n") {
		assert.LessOrEqual(t, len(line), 120)
	}
	doc, err := os.ReadFile(picture)
	require.NoError(t, err)
	for dec := xml.NewDecoder(strings.NewReader(string(doc))); ; {
		_, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
	}
	assert.Contains(t, string(doc), "node4")
	assert.Contains(t, string(doc), fmt.Sprintf("process %d", os.Getpid()))

	// A node with another number of nodes is reported.
	_, err = sdp.Open(name + "?node=4&nodes=5")
	require.ErrorIs(t, err, fabric.ErrMismatch)
	p = newProgram(t, nil, "topology", "--fabric", name+"?nodes=4")
	require.Zero(t, p.run(t), p.stderr.String())
	assert.Contains(t, p.stdout.String(), "node1 has refused ")

	p = newProgram(t, nil, "topology", "--json", "--fabric", name)
	require.Zero(t, p.run(t), p.stderr.String())
	var top fabric.Topology
	require.NoError(t, json.Unmarshal(p.stdout.Bytes(), &top))
	assert.Len(t, top.Views, 3)
	assert.Equal(t, []int{4}, top.Absent)
	assert.Equal(t, "up", top.Wires[0].State)
}

func TestTopologyOfNothing(t *testing.T) {
	for _, c := range []struct {
		status int
		fabric string
	}{
		{exitFailed, "ring:perf-test-nobody"}, {exitBadInput, "shm:perf-test"}, {exitBadInput, ""},
	} {
		p := newProgram(t, []string{"SDP_FABRIC="}, "topology", "--fabric", c.fabric)
		assert.Equal(t, c.status, p.run(t), c.fabric)
		assert.Empty(t, p.stdout.String())
		assert.Equal(t, 1, strings.Count(p.stderr.String(), "\n"))
	}
}
