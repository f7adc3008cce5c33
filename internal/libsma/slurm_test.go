//go:build linux

package main

import (
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// slurm starts Slurm on this machine, as a cluster of one node, and sets the variable by which srun
// finds it. Without Slurm, or another user than root, the test is skipped, but not in CI.
func slurm(t *testing.T) {
	t.Helper()
	for _, name := range []string{"munged", "slurmctld", "slurmd", "srun", "sinfo"} {
		if _, err := exec.LookPath(name); (err != nil || os.Getuid() != 0) && os.Getenv("CI") != "true" {
			t.Skipf("%v, user %d: a cluster of Slurm needs root, and Debian's slurm-wlm and munge", err, os.Getuid())
		}
	}
	dir, err := os.MkdirTemp("", "slurm") // short, for a socket
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	in := func(name string) string { return filepath.Join(dir, name) }
	host, err := os.Hostname()
	require.NoError(t, err)
	host, _, _ = strings.Cut(host, ".")
	key := make([]byte, 128)
	rand.Read(key)
	require.NoError(t, os.WriteFile(in("key"), key, 0o600))
	require.NoError(t, os.WriteFile(in("conf"), fmt.Appendf(nil, `ClusterName=test
SlurmctldHost=%[1]s(127.0.0.1)
SlurmctldPort=%[3]d
SlurmdPort=%[4]d
AuthInfo=socket=%[2]s/munge
SlurmUser=root
StateSaveLocation=%[2]s
SlurmdSpoolDir=%[2]s
SlurmctldPidFile=%[2]s/slurmctld.pid
SlurmdPidFile=%[2]s/slurmd.pid
ProctrackType=proctrack/pgid
SlurmdParameters=config_overrides
NodeName=%[1]s NodeAddr=127.0.0.1 CPUs=8
PartitionName=test Nodes=%[1]s Default=YES
`, host, dir, freePort(t), freePort(t)), 0o644))
	t.Setenv("SLURM_CONF", in("conf"))
	daemon(t, "munged", "--foreground", "--force", "--key-file="+in("key"), "--socket="+in("munge"),
		"--pid-file="+in("munged.pid"), "--log-file="+in("munged.log"), "--seed-file="+in("seed"))
	eventually(t, func() bool { _, err := os.Stat(in("munge")); return err == nil }, "munged")
	daemon(t, "slurmctld", "-D")
	daemon(t, "slurmd", "-D")
	eventually(t, func() bool {
		out, _ := exec.Command("sinfo", "-h", "-o", "%T").Output()
		return string(out) == "idle\n"
	}, "slurmctld and slurmd")
}

func eventually(t *testing.T, is func() bool, what string) {
	t.Helper()
	require.Eventually(t, is, time.Minute, 50*time.Millisecond, what)
}

// daemon runs a command until the test ends.
func daemon(t *testing.T, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		kill := time.AfterFunc(30*time.Second, func() { cmd.Process.Kill() })
		cmd.Wait()
		kill.Stop()
	})
}

// freePort returns a port on which nobody listens.
func freePort(t *testing.T) int {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port
}

// srun starts programs in each of its ways, and its status is that of GlobalExit.
func TestSlurm(t *testing.T) {
	exe, mistakes := compile(t, "oshcc", hello), compile(t, "oshcc", "../../cmd/libsma/testdata/programs/mistakes.c")
	slurm(t)
	for _, way := range []string{"none", "pmi2", "pmix"} {
		assert.Equal(t, result{0, "3 PEs, sum 6\n", ""}, run(t, nil, "srun", "-Q", "--mpi="+way, "-n", "3", exe), way)
		r := run(t, nil, "srun", "-Q", "--mpi="+way, "-n", "2", mistakes, "global")
		assert.Equal(t, 9, r.status, "%s: %s", way, r.errors)
		assert.Contains(t, r.out, "printed before", way)
	}
}
