package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestADeadChildIsReported(t *testing.T) {
	p := startLong(t)
	pid := childOf(t, p.Process.Pid)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	assert.Equal(t, 1, p.wait(t))
	// It may have listened, and not said so yet; or what was measured is printed.
	assertOneLine(t, p.stderr.String(), "the second process: ")
	assertOneLine(t, p.stderr.String(), "signal: killed")
}

// The PEs of a killed program end, and leave no more than their fabric's directory.
func TestSHMEMOfAKilledProgram(t *testing.T) {
	p := newProgram(t, nil, "shmem", "-t", "3600")
	p.start(t)
	var pes []int
	eventually(t, "the PEs run", func() bool {
		pes = findChildren(t, p.Process.Pid)
		return len(pes) == 2 && len(p.fabrics(t)) > 0
	})
	require.NoError(t, p.Process.Kill())
	assert.Equal(t, -1, p.wait(t))
	// One that has only begun may make the directory again, until it has ended.
	for _, pe := range pes {
		eventually(t, "a PE ends", func() bool { return commandLine(pe) == "" })
	}
}

// childOf returns the process whose parent is pid.
func childOf(t *testing.T, pid int) int {
	t.Helper()
	children := findChildren(t, pid)
	require.Len(t, children, 1)
	return children[0]
}

// findChildren leaves out children that have not begun a program of their own. Package os makes
// such a one, for a moment, before it starts the first process.
func findChildren(t *testing.T, pid int) (children []int) {
	t.Helper()
	own := commandLine(pid)
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(t, err)
	for _, name := range stats {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // the process has ended
		}
		// The format is "pid (name) state ppid ...", and the name may contain any
		// character.
		after := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
		if after[1] == strconv.Itoa(pid) {
			child, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			require.NoError(t, err)
			if line := commandLine(child); line != own && line != "" {
				children = append(children, child)
			}
		}
	}
	return children
}

// commandLine returns the command line of a process, or "" if it has ended.
func commandLine(pid int) string {
	b, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	return string(b)
}
