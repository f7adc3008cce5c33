//go:build linux

package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// mpiAgent is what Open MPI starts in place of ssh: a host, and a command for its shell. A host is a file with
// its network namespace.
const mpiAgent = `#!/bin/sh
host=$1
shift
dir=$(dirname "$0")
exec nsenter --net="$(cat "$dir/$host")" unshare --uts sh -c "hostname node-$host && export TMPDIR=$dir/tmp-$host && $*"
`

// Processes of MPI in three nodes have only TCP.
func TestTunMPI(t *testing.T) {
	program := filepath.Join(t.TempDir(), "mpi")
	out, err := exec.Command(tool(t, "mpicc.openmpi"), "-O2", "-Wall", "-Wextra", "-Werror", "-o", program, "testdata/mpi.c").CombinedOutput()
	require.NoError(t, err, "%s", out)
	dir, mpirun := shortDir(t), tool(t, "mpirun.openmpi")
	nodes := startTun(t, 3, "--http", tunCounters)
	hosts := ""
	for _, n := range nodes {
		host := fmt.Sprintf("10.77.0.%d", n.number)
		require.NoError(t, os.WriteFile(filepath.Join(dir, host), []byte(n.namespace()), 0o600))
		require.NoError(t, os.Mkdir(filepath.Join(dir, "tmp-"+host), 0o700)) // they would make the same directories at once
		hosts += "," + host
	}
	agent := filepath.Join(dir, "agent")
	require.NoError(t, os.WriteFile(agent, []byte(mpiAgent), 0o700))
	said := nodes[0].run(mpirun, "--allow-run-as-root", "-np", "3", "--host", hosts[1:], "--leave-session-attached",
		"--mca", "plm", "rsh", "--mca", "plm_rsh_agent", agent, "--mca", "plm_rsh_no_tree_spawn", "1",
		"--mca", "oob_tcp_if_include", "10.77.0.0/24", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "10.77.0.0/24",
		"--mca", "mpi_yield_when_idle", "1",
		"--mca", "rtc_hwloc_vmhole", "none", // no map of the topology, which Open MPI may lay over its own stack
		program)
	require.Contains(t, said, "3 processes, sum 6\n") // PMIx may complain of its own store of data before
	for _, n := range nodes {
		require.True(t, n.counts(fmt.Sprintf(`received_bytes_total\{node="%d"\} \d{7,}`, n.number%3+1))(), "MPI has used the devices")
	}
}
