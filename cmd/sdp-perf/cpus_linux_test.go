package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ntbnet/ntbnet/internal/perf/hops"
)

// oneCPU are the arguments of short runs on one processor.
var oneCPU = map[string][]string{
	"ring": {"ring", "--cpus", "1", "--only", "chains", "--hops", "2", "--rounds", "1", "--duration", "1ms"},
}

func TestReportsOfOneProcessorSaySo(t *testing.T) {
	all, err := usableCPUs()
	require.NoError(t, err)
	p := newProgram(t, []string{"GOMAXPROCS=3"}, append(oneCPU["ring"], "--json")...)
	require.Zero(t, p.run(t), p.stderr.String())
	var r hops.Report
	require.NoError(t, json.Unmarshal(p.stdout.Bytes(), &r))
	assert.Equal(t, 1, r.Host.CPUs)
	assert.Equal(t, 1, r.Host.GOMAXPROCS)
	assert.GreaterOrEqual(t, r.Host.Of, len(all))
	assert.Len(t, r.Chains, 4)

	if testing.Short() {
		return
	}
	line := "1 CPU, GOMAXPROCS 1, "
	if r.Host.Of > 1 {
		line = fmt.Sprintf("1 of %d CPUs, GOMAXPROCS 1, ", r.Host.Of)
	}
	for _, args := range oneCPU {
		p = newProgram(t, nil, args...)
		require.Zero(t, p.run(t), p.stderr.String())
		assert.True(t, strings.HasPrefix(p.stdout.String(), line), p.stdout.String())
	}
}

// Every thread of the program and of each process that it starts is bound.
func TestAllProcessesRunOnTheProcessorsAskedFor(t *testing.T) {
	all, err := usableCPUs()
	require.NoError(t, err)
	p := newProgram(t, nil, "ring", "--cpus", "1", "--only", "chains", "--hops", "2", "--rounds", "1000", "--duration", "1ms")
	p.start(t)
	p.childThatRuns(t, bareCommand) // these are started last
	pids := append(findChildren(t, p.Process.Pid), p.Process.Pid)
	assert.GreaterOrEqual(t, len(pids), 1+3+2*3) // this one, the nodes, the relays with their ends, the bare chain
	for _, pid := range pids {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
		require.NoError(t, err)
		require.NotEmpty(t, threads)
		for _, thread := range threads {
			tid, err := strconv.Atoi(filepath.Base(thread))
			require.NoError(t, err)
			set := unix.NewCPUSet(mostCPUs)
			if err := unix.SchedGetaffinityDynamic(tid, set); err == unix.ESRCH {
				continue // it has ended
			}
			assert.True(t, set.Count() == 1 && set.IsSet(all[0]), "%s: %d processors", thread, set.Count())
		}
	}
	require.NoError(t, p.Process.Signal(syscall.SIGINT))
	assert.Equal(t, exitInterrupted, p.wait(t))
}

// A process may use fewer processors than the machine has.
func TestMoreProcessorsThanThereAreIsBadInput(t *testing.T) {
	all, err := usableCPUs()
	require.NoError(t, err)
	for _, command := range []string{"ring"} {
		for _, n := range []int{-1, 0, len(all) + 1} {
			p := newProgram(t, nil, command, "--cpus", strconv.Itoa(n))
			assert.Equal(t, exitBadInput, p.run(t))
			assertOneLine(t, p.stderr.String(), fmt.Sprintf("--cpus %d: use a number from 1 to %d, as many as this process may use", n, len(all)))
			assert.Empty(t, p.stdout.String())
		}
	}

	// A child gets the processors of the thread that starts it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	old, one := unix.NewCPUSet(mostCPUs), unix.NewCPUSet(mostCPUs)
	require.NoError(t, unix.SchedGetaffinityDynamic(0, old))
	one.Set(slices.Max(all))
	require.NoError(t, unix.SchedSetaffinityDynamic(0, one))
	p := newProgram(t, nil, "ring", "--cpus", "2")
	p.start(t)
	require.NoError(t, unix.SchedSetaffinityDynamic(0, old))
	assert.Equal(t, exitBadInput, p.wait(t))
	assertOneLine(t, p.stderr.String(), "--cpus 2: use a number from 1 to 1, as many as this process may use")
}

// A program that was started anew does not start itself again.
func TestProcessorsThatDoNotComeAreReported(t *testing.T) {
	p := newProgram(t, []string{envOnCPUs + "=1", "GOMAXPROCS=3"}, "ring", "--cpus", "1")
	assert.Equal(t, exitBadInput, p.run(t))
	assertOneLine(t, p.stderr.String(), "--cpus 1: this process gets ")
}
