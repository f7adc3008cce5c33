package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ntbnet/ntbnet/internal/perf/hops"
)

func TestRing(t *testing.T) {
	p := newProgram(t, nil, "ring", "--only", "rings", "--nodes", "4", "--hops", "1,2", "--lanes", "2", "--rounds", "1", "--duration", "5ms", "--json")
	require.Zero(t, p.run(t), p.stderr.String())
	assert.Empty(t, p.stderr.String())
	var r hops.Report
	require.NoError(t, json.Unmarshal(p.stdout.Bytes(), &r))
	require.Len(t, r.Rows, 3)
	for _, row := range r.Rows {
		assert.Positive(t, row.Alone.P50)
		assert.Positive(t, row.Alone.Throughput)
		assert.Positive(t, row.Together.P99)
		assert.Positive(t, row.Together.Slowest)
		assert.Equal(t, row.Hops == 2, row.Alone.Frame > 0 && row.Alone.Data > 0)
	}
	require.Len(t, r.Work, 2)
	for _, s := range r.Shares {
		assert.Positive(t, s.Throughput)
	}
}

func TestRingBadInput(t *testing.T) {
	for _, args := range [][]string{
		{"--nodes", "1"}, {"--nodes", "17"}, {"--hops", "0"}, {"--lanes", "9"}, {"--nodes", "3", "--hops", "2"},
		{"--rounds", "0"}, {"--duration", "0s"}, {"--nodes", "x"}, {"more"}, {"--only", "lanes"}, {"--only", "chains", "--hops", "9"},
	} {
		p := newProgram(t, nil, append([]string{"ring"}, args...)...)
		assert.Equal(t, exitBadInput, p.run(t), args)
		assert.Empty(t, p.stdout.String())
		assert.Equal(t, 1, strings.Count(p.stderr.String(), "\n"), p.stderr.String())
	}
}
