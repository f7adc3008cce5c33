package launch

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	eventually = 60 * time.Second
	tick       = 10 * time.Millisecond
)

// envPE makes this test binary a PE of one of the tests below.
const envPE = "LAUNCH_TEST_PE"

func TestMain(m *testing.M) {
	if what := os.Getenv(envPE); what != "" {
		if err := beAPE(what); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// beAPE finds out which PE this process is, and prints that.
func beAPE(what string) error {
	j, err := Find(os.Getenv)
	if err != nil {
		return err
	}
	if what == "abort" {
		if j.PE == 1 {
			return j.Abort(7, "told to")
		}
		time.Sleep(eventually) // until the launcher ends it
	}
	fmt.Printf("PE %d of %d, job %s by %s\n", j.PE, j.N, j.Name, j.From)
	return j.Close()
}

// launcher returns a command that starts PEs of this test binary. If the launcher
// is missing, the test is skipped, but not in CI.
func launcher(t *testing.T, what, name string, args ...string) *exec.Cmd {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skipf("%v; Debian has it in package mpich or openmpi-bin", err)
	}
	exe, err := os.Executable()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, path, append(args, exe)...)
	cmd.Env = append(os.Environ(), envPE+"="+what, "GORACE=atexit_sleep_ms=0") // otherwise each PE ends a second late
	return cmd
}

// jobOf checks that out has one line of each of n PEs of one job, and returns its
// name.
func jobOf(t *testing.T, out string, n int, from string) string {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, n, out)
	_, rest, _ := strings.Cut(lines[0], "job ")
	name, _, _ := strings.Cut(rest, " ")
	for pe := range n {
		assert.Contains(t, lines, fmt.Sprintf("PE %d of %d, job %s by %s", pe, n, name, from))
	}
	return name
}

func TestUnderMpiexecHydra(t *testing.T) {
	var names [2]string
	for i := range names {
		out, err := launcher(t, "name", "mpiexec.hydra", "-n", "4").CombinedOutput()
		// MPICH's launcher may be ended by SIGPIPE, which it does not ignore, when one of its helpers ends early.
		for try := 0; try < 5 && err != nil && err.Error() == "signal: broken pipe"; try++ {
			out, err = launcher(t, "name", "mpiexec.hydra", "-n", "4").CombinedOutput()
		}
		require.NoError(t, err, "%s", out)
		names[i] = jobOf(t, string(out), 4, "PMI")
	}
	assert.NotEqual(t, names[0], names[1])
}

func TestAbortUnderMpiexecHydra(t *testing.T) {
	out, err := launcher(t, "abort", "mpiexec.hydra", "-n", "3").CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, "%s", out)
	assert.Equal(t, 7, exit.ExitCode(), "%s", out)
	// mpiexec.hydra may lose the PEs' most recent output.
}

func TestAbortSaysWhyWithoutALauncherToTell(t *testing.T) {
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), envPE+"=abort", "SHMEM_PE=1", "SHMEM_NPES=3")
	out, err := cmd.CombinedOutput()
	assert.NoError(t, err)
	assert.Equal(t, "PE 1 of 3: told to\n", string(out))
}

func TestUnderOshrun(t *testing.T) {
	var names [2]string
	for i := range names {
		cmd := launcher(t, "name", "oshrun", "--oversubscribe", "-n", "3")
		cmd.Env = append(cmd.Env, "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
		out, err := cmd.Output()
		require.NoError(t, err)
		names[i] = jobOf(t, string(out), 3, "OMPI_COMM_WORLD_RANK")
	}
	assert.NotEqual(t, names[0], names[1])
}
