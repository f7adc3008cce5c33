package shmem

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func init() {
	bodies["launched"] = func(t require.TestingT, w *World) {
		basics(t, w)
		fmt.Printf("PE %d of %d\n", w.PE(), w.NumPEs())
	}
	bodies["global exit"] = func(t require.TestingT, w *World) {
		require.NoError(t, w.Team().Barrier(context.Background()))
		if w.PE() == w.NumPEs()-1 {
			w.GlobalExit(7)
		}
		time.Sleep(time.Minute)
	}
}

// launched runs a body on PEs that a launcher of another project starts. It returns
// the launcher's exit status and output.
func launched(t *testing.T, name string, launcher ...string) (int, string) {
	t.Helper()
	path, err := exec.LookPath(launcher[0])
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%v, and CI=true", err)
		}
		t.Skip(err)
	}
	require.Contains(t, bodies, name)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, append(launcher[1:], os.Args[0])...)
	cmd.Env = append(os.Environ(), envBody+"="+name)
	cmd.WaitDelay = time.Minute // what it started may write still
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v\n%s", err, &out)
	}
	return cmd.ProcessState.ExitCode(), out.String()
}

func lines(s string) []string { return strings.Split(strings.TrimSpace(s), "\n") }

func TestUnderHydra(t *testing.T) {
	status, out := launched(t, "launched", "mpiexec.hydra", "-n", "4")
	require.Zero(t, status, out)
	require.ElementsMatch(t, []string{"PE 0 of 4", "PE 1 of 4", "PE 2 of 4", "PE 3 of 4"}, lines(out))
}

func TestUnderHydraGlobalExitEndsTheJob(t *testing.T) {
	status, out := launched(t, "global exit", "mpiexec.hydra", "-n", "3")
	require.Equal(t, 7, status, out)
}

func TestUnderOpenMPI(t *testing.T) {
	status, out := launched(t, "launched", "mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "2")
	require.Zero(t, status, out)
	require.ElementsMatch(t, []string{"PE 0 of 2", "PE 1 of 2"}, lines(out))
}
