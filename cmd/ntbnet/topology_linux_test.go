package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ntbnet/ntbnet/internal/census"
	"github.com/ntbnet/ntbnet/internal/greeting"
	"github.com/ntbnet/ntbnet/internal/status"
	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
	p := newProgram([]string{"SDP_FABRIC=" + name}, "topology", "--svg", picture)
	require.Zero(t, p.run(), p.stderr.String())
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
	_, table, ok := strings.Cut(text, "\nnode    forwarded")
	require.True(t, ok, text)
	for node := 1; node <= 3; node++ {
		assert.Regexp(t, fmt.Sprintf(`\nnode%d +[0-9]+ frames? +[0-9]+ +[0-9]+ +[0-9]+ +(0|[0-9]+ \(.*\)) +[0-9]+\.[0-9]{2} s\n`, node), table)
	}
	doc, err := os.ReadFile(picture)
	require.NoError(t, err)
	wellFormed(t, string(doc))
	assert.Contains(t, string(doc), "node4")
	assert.Contains(t, string(doc), fmt.Sprintf("process %d", os.Getpid()))

	// A node with another number of nodes is reported.
	_, err = sdp.Open(name + "?node=4&nodes=5")
	require.ErrorIs(t, err, greeting.ErrMismatch)
	p = newProgram(nil, "topology", "--fabric", name+"?nodes=4")
	require.Zero(t, p.run(), p.stderr.String())
	assert.Contains(t, p.stdout.String(), "node1 has refused ")

	p = newProgram(nil, "topology", "--json", "--fabric", name)
	require.Zero(t, p.run(), p.stderr.String())
	var top status.Fabric
	require.NoError(t, json.Unmarshal(p.stdout.Bytes(), &top))
	assert.Len(t, top.Views, 3)
	assert.Equal(t, []int{4}, top.Absent)
	assert.Equal(t, "up", top.Wires[0].State)
}

// A forwarder has forwarded, was woken or yielded meanwhile, and has used a processor.
func TestTopologyShowsWhatForwardersDo(t *testing.T) {
	for _, v := range forwardersWork(t).Views {
		var forwarded, waits uint64
		for _, l := range v.Links {
			forwarded += l.ForwardedFrames
			waits += l.Wakes + l.Yields
		}
		assert.Equal(t, v.Node == 2, forwarded > 0)
		assert.Positive(t, waits)
		assert.Positive(t, v.CPU)
	}

	var b strings.Builder
	require.NoError(t, printTopology(&b, &status.Fabric{Views: []*status.Process{
		{
			Node: 2, CPU: 1.256, Drops: map[string]uint64{"unknown tunnel": 3, "no route": 4},
			Links: []status.Link{{ForwardedFrames: 5, Wakes: 6, Rests: 7, Yields: 8}, {ForwardedFrames: 10, Wakes: 20, Rests: 30, Yields: 40}},
		},
		{Node: 3, Links: []status.Link{{ForwardedFrames: 1}}},
	}}))
	text := strings.Join(strings.Fields(b.String()), " ")
	want := "node forwarded wake-ups rests yields dropped CPU node2 15 frames 26 37 48 7 (no route 4, unknown tunnel 3) 1.26 s node3 1 frame 0 0 0 0 -"
	assert.True(t, strings.HasSuffix(text, want), text)
}

// forwardersWork has the ends of a line of three processes exchange some data, and returns the
// topology then.
func forwardersWork(t *testing.T) *status.Fabric {
	t.Helper()
	name := "line:" + fabrictest.Name(t)
	for node := 2; node <= 3; node++ {
		server(t, fmt.Sprintf("%s?node=%d&nodes=3", name, node))
	}
	f, err := sdp.Open(name + "?node=1&nodes=3")
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	var conn net.Conn
	eventually(t, "node 3 listens", func() bool {
		conn, err = f.Dial("sdp", "node3:7007")
		return err == nil
	})
	t.Cleanup(func() { conn.Close() })
	for range 16 {
		sent, back := make([]byte, 4096), make([]byte, 4096)
		_, err := conn.Write(sent)
		require.NoError(t, err)
		_, err = io.ReadFull(conn, back)
		require.NoError(t, err)
	}
	top, err := census.ReadTopology(context.Background(), name)
	require.NoError(t, err)
	require.Len(t, top.Views, 3)
	return top
}

func TestTopologyOfNothing(t *testing.T) {
	for _, c := range []struct {
		status int
		fabric string
	}{
		{statusFailed, "ring:perf-test-nobody"}, {statusUsage, "shm:perf-test"}, {statusUsage, ""},
	} {
		p := newProgram([]string{"SDP_FABRIC="}, "topology", "--fabric", c.fabric)
		assert.Equal(t, c.status, p.run(), c.fabric)
		assert.Empty(t, p.stdout.String())
		assert.Equal(t, 1, strings.Count(p.stderr.String(), "\n"))
	}
}
