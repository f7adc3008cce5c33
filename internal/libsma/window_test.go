//go:build linux

package main

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/ntbnet/ntbnet/internal/census"
	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// written returns how many bytes the PE of node 1 has written to connections.
func written(t *testing.T) (n uint64) {
	t.Helper()
	f, err := census.ReadTopology(t.Context(), "line:"+fabrictest.Name(t))
	require.NoError(t, err)
	require.Len(t, f.Views, 2)
	require.NotEmpty(t, f.Views[0].Connections)
	for _, c := range f.Views[0].Connections {
		n += c.Inline + c.MMIO + c.DMA
	}
	return n
}

// Puts to objects are stores to the other PE's window. Those to variables, and what follows them, are requests.
func TestPutsToAWindowAreNoRequests(t *testing.T) {
	exe := compile(t, "oshcc", "../../cmd/libsma/testdata/programs/window.c")
	for _, options := range []string{"puts=window", "puts=window&heap=5242880"} {
		env := nodesOf(t, options)
		var pes [2]*exec.Cmd
		var errors [2]bytes.Buffer
		for pe := range pes {
			pes[pe] = exec.CommandContext(t.Context(), exe)
			pes[pe].Env = append(os.Environ(), env[pe]...)
			pes[pe].Stderr = &errors[pe]
		}
		in, err := pes[0].StdinPipe()
		require.NoError(t, err)
		out, err := pes[0].StdoutPipe()
		require.NoError(t, err)
		for _, pe := range pes {
			require.NoError(t, pe.Start())
		}
		lines := bufio.NewScanner(out)
		after := func(step string) uint64 {
			if !lines.Scan() {
				_ = pes[0].Wait()
				require.Fail(t, "PE 0 ended: "+errors[0].String())
			}
			require.Equal(t, step, lines.Text())
			n := written(t)
			_, err := io.WriteString(in, "\n")
			require.NoError(t, err)
			return n
		}
		ready := after("ready")
		assert.Equal(t, ready, after("object"), options)
		assert.Greater(t, after("variable"), ready+2<<20, options)
		for pe := range pes {
			require.NoError(t, pes[pe].Wait(), "PE %d: %s", pe, &errors[pe])
		}
	}
}

func TestVariablesAreLargerThanAHeapInAWindow(t *testing.T) {
	exe := compile(t, "oshcc", "../../cmd/libsma/testdata/programs/window.c")
	for _, r := range onNodes(t, "puts=window", exe, "SHMEM_SYMMETRIC_SIZE=1m") {
		assert.Equal(t, 1, r.status)
		assert.Contains(t, r.errors, "shmem_init: global and static variables of 21")
	}
}
