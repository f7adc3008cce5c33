package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
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
	for _, row := range []string{"one word along a chain and back", "2 hops, 3 processes", "3 hops, 4 processes", "4 hops, 5 processes", "one sched_yield"} {
		assert.Contains(t, p.stdout.String(), row)
	}

	p = newProgram(t, nil, "limits", "--quick", "--json", "--hops", "1")
	require.Zero(t, p.run(t), p.stderr.String())
	var r limits.Report
	dec := json.NewDecoder(&p.stdout)
	dec.DisallowUnknownFields()
	require.NoError(t, dec.Decode(&r))
	assert.Positive(t, r.Line.Best)
	assert.Positive(t, r.Best.GBs)
	assert.Positive(t, r.Yield.Best)
	require.Len(t, r.Chains, 1)
	assert.Equal(t, 1, r.Chains[0].Hops)
	assert.Positive(t, r.Chains[0].Best)
}

func TestLimitsBadInput(t *testing.T) {
	for _, args := range [][]string{{"--hops", "0"}, {"--hops", "2,16"}, {"--hops="}, {"--hops", "x"}, {"more"}} {
		p := newProgram(t, nil, append([]string{"limits"}, args...)...)
		assert.Equal(t, exitBadInput, p.run(t), args)
		assert.Empty(t, p.stdout.String())
		assert.Equal(t, 1, strings.Count(p.stderr.String(), "\n"), p.stderr.String())
	}
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
	for command, says := range map[string]string{
		helperCommand: "the second process: signal: killed",
		bareCommand:   "of a chain: signal: killed",
	} {
		p := newProgram(t, nil, "limits", "--hops", "2")
		p.start(t)
		require.NoError(t, syscall.Kill(p.childThatRuns(t, command), syscall.SIGKILL))
		assert.Equal(t, 1, p.wait(t))
		assertOneLine(t, p.stderr.String(), says)
	}
}

// childThatRuns waits for a child of the program with a command of its own, and returns its
// number.
func (p *program) childThatRuns(t *testing.T, command string) (pid int) {
	t.Helper()
	eventually(t, command+" runs", func() bool {
		for _, child := range findChildren(t, p.Process.Pid) {
			line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", child))
			if args := strings.Split(string(line), "\x00"); err == nil && len(args) > 1 && args[1] == command {
				pid = child
			}
		}
		return pid > 0
	})
	return pid
}

func (p *program) hasChild(t *testing.T) func() bool {
	return func() bool {
		return len(findChildren(t, p.Process.Pid)) > 0
	}
}
