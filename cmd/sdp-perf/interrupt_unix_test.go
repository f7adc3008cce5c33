//go:build unix

package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// startLong starts a run that takes long, and returns when its child listens.
func startLong(t *testing.T) *program {
	t.Helper()
	p := newProgram(t, nil, "-t", "3600")
	p.start(t)
	eventually(t, "the child listens", p.socketExists)
	return p
}

func TestAnInterruptLeavesNoChildAndNoSocket(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		p := startLong(t)
		require.NoError(t, p.Process.Signal(sig))
		assert.Equal(t, exitInterrupted, p.wait(t))
		assertOneLine(t, p.stderr.String(), "interrupted")
	}
}

// A terminal sends the signal to the whole process group.
func TestAnInterruptFromTheTerminal(t *testing.T) {
	p := newProgram(t, nil, "-t", "3600")
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.start(t)
	eventually(t, "the child listens", p.socketExists)
	require.NoError(t, syscall.Kill(-p.Process.Pid, syscall.SIGINT))
	assert.Equal(t, exitInterrupted, p.wait(t))
	assertOneLine(t, p.stderr.String(), "interrupted")
}

func TestTheChildEndsWhenItsParentIsKilled(t *testing.T) {
	p := startLong(t)
	require.NoError(t, p.Process.Kill())
	assert.Equal(t, -1, p.wait(t))
	assert.Empty(t, p.stderr.String())
}

// The parent may be killed after the child listens and before it could report that.
func TestAChildThatNobodyHearsCleansUp(t *testing.T) {
	for _, transport := range []string{"unix", "frob"} {
		p := newProgram(t, nil)
		dir := filepath.Join(p.tmp, "sdp-perf-child")
		require.NoError(t, os.Mkdir(dir, 0o700))
		p.Dir = dir
		p.Args = append(p.Args, servantCommand, dir, transport)
		r, w, err := os.Pipe()
		require.NoError(t, err)
		r.Close()
		p.Stdout = w
		p.start(t) // its standard input is empty
		w.Close()
		assert.Equal(t, exitFailed, p.wait(t))
		assert.Empty(t, p.stderr.String())
	}
}
