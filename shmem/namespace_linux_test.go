package shmem

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/stretchr/testify/require"
)

func init() {
	bodies["mapped"] = func(t require.TestingT, w *World) {
		for pe := range w.NumPEs() {
			mapped, err := w.Mapped(pe)
			require.True(t, mapped, "PE %d: %v", pe, err)
		}
		basics(t, w)
	}
}

// PEs whose numbers of processes mean nothing to each other, as in containers, map each other's
// heaps.
func TestPEsOfOtherPidNamespacesMapEachOther(t *testing.T) {
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	trial := exec.Command("true")
	trial.SysProcAttr = attr
	if err := trial.Run(); err != nil {
		fmt.Printf("WARNING: %s is skipped: no pid namespace: %v\n", t.Name(), err)
		t.Skip("no pid namespace: ", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	const n = 2
	job := fabrictest.Name(t)
	var all [n]*exec.Cmd
	for pe := range all {
		cmd := exec.CommandContext(ctx, os.Args[0])
		cmd.Env = append(os.Environ(), envBody+"=mapped", fmt.Sprintf("%s=%d %d %s shm:%s mapped", envArgs, pe, n, job, job))
		cmd.Stderr = new(bytes.Buffer)
		cmd.SysProcAttr = attr
		require.NoError(t, cmd.Start())
		all[pe] = cmd
	}
	for pe, cmd := range all {
		if err := cmd.Wait(); err != nil {
			t.Errorf("PE %d: %v\n%s", pe, err, cmd.Stderr)
		}
	}
}
