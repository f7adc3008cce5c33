package shmem

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func init() { bodies["again"] = again }

// again closes the World and opens one again, several times. PEs are at different places of that, since each lets
// the others go first in its turn.
func again(t require.TestingT, w *World) {
	ctx := context.Background()
	for round := range 6 {
		s, err := AllocZeroed[int64](ctx, w, 1)
		require.NoError(t, err)
		require.Zero(t, s.Local()[0], "round %d", round)
		require.NoError(t, w.Team().Sync(ctx))
		AtomicAdd(w.Ctx(), s, 0, int64(w.PE()+1), (w.PE()+1)%w.NumPEs())
		require.NoError(t, w.Team().Barrier(ctx))
		require.Equal(t, int64((w.PE()+w.NumPEs()-1)%w.NumPEs()+1), s.Local()[0])
		require.NoError(t, w.Close(ctx))
		if w.PE() == round%w.NumPEs() {
			time.Sleep(20 * time.Millisecond)
		}
		w, err = Open(ctx)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close(ctx))
	os.Exit(0)
}

func TestAProgramOpensAgain(t *testing.T) {
	if testing.Short() {
		t.Skip("processes: not with the race detector, which does not see what they share")
	}
	for name, fabric := range map[string]func(job string, pe int) string{
		"its own":  func(string, int) string { return "" },
		"one host": func(job string, _ int) string { return "shm:" + job },
		"a ring":   ringOf(3),
		"members":  func(job string, pe int) string { return fmt.Sprintf("line:%s?node=%d&nodes=2&share=1", job, pe/2+1) },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var all []*exec.Cmd
		job := fabrictest.Name(t)
		for pe := range 3 {
			cmd := exec.CommandContext(ctx, os.Args[0])
			cmd.Env = append(os.Environ(), envBody+"=again", "SHMEM_JOB="+job, fmt.Sprint("SHMEM_PE=", pe), "SHMEM_NPES=3", "SDP_FABRIC="+fabric(job, pe))
			cmd.Stderr = new(bytes.Buffer)
			require.NoError(t, cmd.Start())
			all = append(all, cmd)
		}
		for pe, cmd := range all {
			assert.NoError(t, cmd.Wait(), "%s: PE %d: %s", name, pe, cmd.Stderr)
		}
	}
}
