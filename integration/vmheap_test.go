//go:build linux

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/stretchr/testify/require"
)

// job runs bodies of the tests of package shmem as two PEs, each of a node, which put by window.
type job struct {
	t      *testing.T
	system vmSystem
	memory string // a server's socket
	tests  string // the program
}

// needJob is needVM for a job.
func needJob(t *testing.T) *job {
	t.Helper()
	wantVM(t)
	tests := testsOf(t, "../shmem")
	return &job{t, needVM(t, map[string]string{"tests": tests}), memory(t), tests}
}

// variables are those of a PE whose node has an end of the memory.
func (j *job) variables(body string, pe int, end string) []string {
	return []string{"SHMEM_TEST_BODY=" + body, fmt.Sprintf("SHMEM_TEST_ARGS=%d 2 %s line:%[2]s?nodes=2&node=%d&%s=ivshmem:%s&puts=window&heap=6291456 mapped 5m",
		pe, fabrictest.Name(j.t), pe+1, []string{"right", "left"}[pe], end)}
}

// machine starts a machine that is a PE. options are those of its memory.
func (j *job) machine(body string, pe int, options string) *vm {
	j.t.Helper()
	s := j.system
	s.variables = j.variables(body, pe, function(0)+options)
	s.variables[1] = fmt.Sprintf("SHMEM_TEST_ARGS=%q", s.variables[1][len("SHMEM_TEST_ARGS="):]) // which has spaces
	return s.startVM(j.t, []string{j.memory + options}, "/tests")
}

// host starts a process of the host that is PE 0.
func (j *job) host(body string, more ...string) *process {
	j.t.Helper()
	return start(j.t, j.tests, nil, withEnv(append(more, j.variables(body, 0, j.memory)...)...))
}

// passed waits until the PE of a machine has ended well, and the machine is off.
func (v *vm) passed() {
	v.t.Helper()
	require.Equal(v.t, "end: ok", v.readLine())
	v.off()
}

// Puts from and to machines are stores to a memory that they have in common. All else of SHMEM works beside them.
func TestVMHeaps(t *testing.T) {
	j := needJob(t)
	for name, options := range map[string]string{"vfio": "", "poll": ",poll"} {
		t.Run("host and "+name, func(t *testing.T) {
			j.t = t
			machine, host := j.machine("stored", 1, options), j.host("stored")
			machine.passed()
			require.Zero(t, host.status(), host.out.String())
		})
	}
	t.Run("two machines", func(t *testing.T) {
		j.t = t
		one, two := j.machine("stored", 0, ""), j.machine("stored", 1, ",poll")
		one.passed()
		two.passed()
	})
}

// A machine is killed while both put. The other PE ends, and the next job finds zeros.
func TestVMIsKilledAmidPuts(t *testing.T) {
	j := needJob(t)
	mark := filepath.Join(t.TempDir(), "pe")
	machine, host := j.machine("puts", 1, ""), j.host("puts", "SHMEM_TEST_MARK="+mark)
	require.Eventually(t, func() bool { _, err := os.Stat(mark + "0"); return err == nil }, machine.guard, time.Millisecond, "both put")
	machine.kill()
	require.Equal(t, 1, host.status())
	require.Contains(t, host.out.String(), "PE 1 has ended")
	machine, host = j.machine("zeros", 1, ""), j.host("zeros")
	machine.passed()
	require.Zero(t, host.status(), host.out.String())
}
