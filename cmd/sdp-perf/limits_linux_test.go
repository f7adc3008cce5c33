package main

import (
	"encoding/json"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ntbnet/ntbnet/internal/perf/limits"
)

func TestLimitsAsTableAndAsJSON(t *testing.T) {
	p := newProgram(t, nil, "limits", "--quick")
	require.Zero(t, p.run(t), p.stderr.String())
	assert.Empty(t, p.stderr.String())
	assert.Contains(t, p.stdout.String(), "one cache line to and fro")
	assert.Contains(t, p.stdout.String(), "two copies through a queue")

	p = newProgram(t, nil, "limits", "--quick", "--json")
	require.Zero(t, p.run(t), p.stderr.String())
	var r limits.Report
	dec := json.NewDecoder(&p.stdout)
	dec.DisallowUnknownFields()
	require.NoError(t, dec.Decode(&r))
	assert.Positive(t, r.Line.Best)
	assert.Positive(t, r.Best.GBs)
}

func TestLimitsInterruptedOrKilled(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		p := newProgram(t, nil, "limits")
		p.start(t)
		eventually(t, "the helper runs", p.hasChild(t))
		require.NoError(t, p.Process.Signal(sig))
		if sig == syscall.SIGINT {
			assert.Equal(t, exitInterrupted, p.wait(t))
			assertOneLine(t, p.stderr.String(), "interrupted")
		} else {
			assert.Equal(t, -1, p.wait(t), "and no helper outlives it")
		}
	}
}

func TestADeadHelperIsReported(t *testing.T) {
	p := newProgram(t, nil, "limits")
	p.start(t)
	eventually(t, "the helper runs", p.hasChild(t))
	require.NoError(t, syscall.Kill(childOf(t, p.Process.Pid), syscall.SIGKILL))
	assert.Equal(t, 1, p.wait(t))
	assertOneLine(t, p.stderr.String(), "the second process: signal: killed")
}

func (p *program) hasChild(t *testing.T) func() bool {
	return func() bool {
		return len(findChildren(t, p.Process.Pid)) > 0
	}
}
