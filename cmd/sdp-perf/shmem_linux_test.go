package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ntbnet/ntbnet/internal/perf/pgas"
)

func TestShmemMeasuresEachItem(t *testing.T) {
	p := newProgram(t, nil, "shmem", "--rounds", "1", "--time", "1ms", "--json")
	require.Zero(t, p.run(t), p.stderr.String())
	assert.Empty(t, p.stderr.String(), "no progress when nobody looks")
	var r pgas.Report
	dec := json.NewDecoder(&p.stdout)
	dec.DisallowUnknownFields()
	require.NoError(t, dec.Decode(&r))
	var rows []string
	for _, row := range r.Rows {
		rows = append(rows, row.Item)
		want := 2
		if row.Item == "copy" || row.Item == "copypieces" || row.Item == "share" {
			want = 1
		}
		assert.Len(t, row.Results, want, row.Item)
	}
	assert.Equal(t, append(pgas.Keys(), "share"), rows)
	require.Len(t, r.Ring, len(pgas.RingKeys)+1)
	assert.Len(t, r.Ring[0].Results, len(pgas.Cases))
}

func TestShmemTableOfSomeItems(t *testing.T) {
	p := newProgram(t, nil, "shmem", "--rounds", "2", "--time", "1ms", "--items", "get")
	require.Zero(t, p.run(t), p.stderr.String())
	out := p.stdout.String()
	assert.Contains(t, out, "rounds: 2, of 1 ms")
	assert.Contains(t, out, "get 8 B")
	assert.NotContains(t, out, "hops")
	assert.NotContains(t, out, "put 8 B")
}

func TestShmemInterruptedOrKilledLeavesNothing(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		p := newProgram(t, nil, "shmem", "--items", "get", "--time", "1m")
		p.start(t)
		var pes []int
		eventually(t, "both PEs run", func() bool { pes = findChildren(t, p.Process.Pid); return len(pes) == 2 })
		require.NoError(t, p.Process.Signal(sig))
		if sig == syscall.SIGINT {
			assert.Equal(t, exitInterrupted, p.wait(t), p.stderr.String())
			assertOneLine(t, p.stderr.String(), "interrupted")
		} else {
			assert.Equal(t, -1, p.wait(t))
			// The PEs' standard error is the program's pipe, so wait has not waited for them.
			for _, pe := range pes {
				eventually(t, "a PE ends", func() bool { return commandLine(pe) == "" })
			}
		}
	}
}

func TestShmemSaysWhichPEFailed(t *testing.T) {
	p := newProgram(t, nil, "shmem", "--items", "get", "--time", "1m")
	p.start(t)
	eventually(t, "both PEs run", func() bool { return len(findChildren(t, p.Process.Pid)) == 2 })
	require.NoError(t, syscall.Kill(findChildren(t, p.Process.Pid)[0], syscall.SIGKILL))
	assert.Equal(t, 1, p.wait(t))
	assertOneLine(t, p.stderr.String(), "direct: PE ")
}

func TestShmemBadInput(t *testing.T) {
	notProgram := filepath.Join(t.TempDir(), "f")
	require.NoError(t, os.WriteFile(notProgram, nil, 0o644))
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"shmem", "--rounds", "0"}, "--rounds 0: use a number from 1 to 1000"},
		{[]string{"shmem", "--time", "0s"}, "--time 0s: use a time from 1ms to 1m"},
		{[]string{"shmem", "--items", "frob"}, `--items: unknown item "frob": use put, putquiet`},
		{[]string{"shmem", "--openmpi", "/nonexistent/f"}, "--openmpi: stat /nonexistent/f"},
		{[]string{"shmem", "--openmpi", notProgram}, "not a program"},
		{[]string{"shmem", "extra"}, "unexpected argument"},
		{[]string{"shmem-pe"}, "is started by sdp-perf itself"},
	} {
		p := newProgram(t, nil, c.args...)
		assert.Equal(t, 2, p.run(t), c.args)
		assertOneLine(t, p.stderr.String(), c.says)
		assert.Empty(t, p.stdout.String())
	}
}
