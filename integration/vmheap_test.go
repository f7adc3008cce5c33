//go:build linux

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/stretchr/testify/require"
)

// job runs bodies of the tests of package shmem as PEs, each of a node, whose heaps are in a memory that all map.
type job struct {
	t      *testing.T
	nodes  int
	system vmSystem
	memory string // a server's socket
	tests  string // the program
}

// needJob is needVM for a job.
func needJob(t *testing.T, nodes int) *job {
	t.Helper()
	wantVM(t)
	tests := testsOf(t, "../shmem")
	return &job{t, nodes, needVM(t, map[string]string{"tests": tests}), memoryFor(t, nodes*(nodes-1)), tests}
}

// meshSpec returns the fabric of a node of a mesh in one memory, of which end returns an end for each other node.
func meshSpec(t *testing.T, nodes, node int, end func(other int) string) string {
	t.Helper()
	text := fmt.Sprintf("mesh:%s?nodes=%d&node=%d", fabrictest.Name(t), nodes, node)
	for other := 1; other <= nodes; other++ {
		if other != node {
			text += fmt.Sprintf("&node%d=ivshmem:%s,peers=%d", other, end(other), nodes)
		}
	}
	return text
}

// variables are those of a PE whose node has an end of the memory for each other one.
func (j *job) variables(body string, pe int, end func(other int) string) []string {
	heap := map[int]int{2: 6 << 20, 3: 2 << 20}[j.nodes]
	return []string{"SHMEM_TEST_BODY=" + body, fmt.Sprintf("SHMEM_TEST_ARGS=%d %d %s %s&puts=window&heap=%d mapped 5m",
		pe, j.nodes, fabrictest.Name(j.t), meshSpec(j.t, j.nodes, pe+1, end), heap)}
}

// machine starts a machine that is a PE. options are those of its memory.
func (j *job) machine(body string, pe int, options string) *vm {
	j.t.Helper()
	s := j.system
	s.variables = j.variables(body, pe, func(other int) string {
		if other > pe {
			other--
		}
		return function(other-1) + options
	})
	s.variables[1] = fmt.Sprintf("SHMEM_TEST_ARGS=%q", s.variables[1][len("SHMEM_TEST_ARGS="):]) // which has spaces
	return s.startVM(j.t, slices.Repeat([]string{j.memory + options}, j.nodes-1), "/tests")
}

// host starts a process of the host that is PE 0.
func (j *job) host(body string, more ...string) *process {
	j.t.Helper()
	return start(j.t, j.tests, nil, withEnv(append(more, j.variables(body, 0, func(int) string { return j.memory })...)...))
}

// passed waits until the PE of a machine has ended well, and the machine is off.
func (v *vm) passed() {
	v.t.Helper()
	require.Equal(v.t, "end: ok", v.readLine())
	v.off()
}

// Puts from and to machines are stores to a memory that they have in common, and the host's gets are loads. All else of
// SHMEM works beside them.
func TestVMHeaps(t *testing.T) {
	j := needJob(t, 2)
	for name, options := range map[string]string{"vfio": "", "poll": ",poll"} {
		t.Run("host and "+name, func(t *testing.T) {
			j.t = t
			machine, host := j.machine("stored", 1, options), j.host("loaded")
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

// A host and two machines put to each other by one memory.
func TestVMHeapsOfThree(t *testing.T) {
	j := needJob(t, 3)
	one, two, host := j.machine("stored", 1, ""), j.machine("stored", 2, ",poll"), j.host("loaded")
	one.passed()
	two.passed()
	require.Zero(t, host.status(), host.out.String())
}

// A machine is killed while both put. The other PE ends, and the next job finds zeros.
func TestVMIsKilledAmidPuts(t *testing.T) {
	j := needJob(t, 2)
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
