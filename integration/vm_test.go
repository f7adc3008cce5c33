//go:build linux

package integration

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/stretchr/testify/require"
)

// lineSpec is a node of a line of two nodes, the test's own.
func lineSpec(t *testing.T, node int, end string) string {
	t.Helper()
	return fmt.Sprintf("line:%s?node=%d&nodes=2&%s=ivshmem:%s", fabrictest.Name(t), node, []string{1: "right", 2: "left"}[node], end)
}

// does asks a node, and logs what it answers.
func does(p *peer, who, question string) {
	p.t.Helper()
	start := time.Now()
	answer := p.ask(question)
	p.t.Logf("%s: %s: %s (%v by the host's clock)", who, question, answer, time.Since(start).Round(10*time.Microsecond))
	require.Regexp(p.t, "^ok", answer)
}

// converse has each of two nodes use the other.
func converse(one, two *peer) {
	one.t.Helper()
	for _, command := range []string{"echo %s 300", "send %s 67108864", "get %s 1000000"} {
		does(one, "node 1", fmt.Sprintf(command, "node2"))
		does(two, "node 2", fmt.Sprintf(command, "node1"))
	}
}

// startHost starts a process of the host as node 1.
func startHost(t *testing.T, path string) *peer {
	t.Helper()
	p := startPeer(t, "far", []string{lineSpec(t, 1, path)})
	require.Equal(t, "ready", p.readLine())
	return p
}

// endHost ends a process whose standard error may have a log.
func endHost(p *peer) {
	p.t.Helper()
	p.in.Close()
	p.wait()
	require.Zero(p.t, p.cmd.ProcessState.ExitCode())
}

// interrupted checks that a machine has had interrupts of its memory, for all but them comes also without.
func (v *vm) interrupted() {
	v.t.Helper()
	answer := v.ask("interrupts")
	v.t.Logf("interrupts: %s", answer)
	require.Regexp(v.t, "^ok [1-9]", answer)
}

// A machine and a process of its host use each other.
func TestVMAndHost(t *testing.T) {
	s := needVM(t, nil)
	for name, option := range map[string]string{"vfio": "", "poll": ",poll"} {
		t.Run(name, func(t *testing.T) {
			path := memory(t)
			machine := s.startVM(t, []string{path + option}, "far", lineSpec(t, 2, function(0)+option))
			host := startHost(t, path)
			machine.ready()
			converse(host, machine.peer)
			if option == "" {
				machine.interrupted()
			}
			machine.end()
			endHost(host)
		})
	}
}

// lockedDown has a kernel refuse as much as one that Secure Boot has started.
const lockedDown = "lockdown=integrity"

// A kernel that is locked down refuses the files of functions. VFIO works, and says what it costs.
func TestVMUnderLockdown(t *testing.T) {
	s := needVM(t, nil)
	s.variables = []string{lockedDown}
	path := memory(t)
	machine := s.startVM(t, []string{path}, "far", lineSpec(t, 2, function(0)))
	host := startHost(t, path)
	machine.ready()
	does(host, "node 1", "echo node2 300")
	does(host, "node 1", "send node2 1000000")
	does(machine.peer, "node 2", "send node1 1000000")
	machine.interrupted()
	machine.end()
	endHost(host)
	require.Equal(t, 1, strings.Count(string(machine.log()), "the kernel is locked down"))
}

// Two machines use each other, one of which has an older kernel.
func TestVMAndVM(t *testing.T) {
	s, old := needVM(t, nil), needVMOf(t, "6.1", nil)
	path := []string{memory(t)}
	one := s.startVM(t, path, "far", lineSpec(t, 1, function(0)))
	two := old.startVM(t, path, "far", lineSpec(t, 2, function(0)))
	one.ready()
	two.ready()
	converse(one.peer, two.peer)
	one.interrupted()
	two.interrupted()
	one.end()
	two.end()
}

// A machine with two memories is between two processes of the host, whose data goes through it.
func TestVMForwards(t *testing.T) {
	s := needVM(t, nil)
	left, right := memory(t), memory(t)
	line := "line:" + fabrictest.Name(t) + "?nodes=3&node="
	machine := s.startVM(t, []string{left, right + ",poll"}, "far", line+"2&left=ivshmem:"+function(0)+"&right=ivshmem:"+function(1)+",poll")
	one := startPeer(t, "far", []string{line + "1&right=ivshmem:" + left})
	three := startPeer(t, "far", []string{line + "3&left=ivshmem:" + right})
	require.Equal(t, "ready", one.readLine())
	require.Equal(t, "ready", three.readLine())
	machine.ready()
	does(one, "node 1", "echo node3 300")
	does(one, "node 1", "send node3 67108864")
	does(three, "node 3", "send node1 67108864")
	does(three, "node 3", "send node2 1000000")
	machine.end()
	endHost(one)
	endHost(three)
}

// What a machine lacks for VFIO is said, and nothing else is used in its place.
func TestVMLacks(t *testing.T) {
	has := needVM(t, nil)
	for name, c := range map[string]struct{ iommu, option, end, variable, want string }{
		"a driver":  {has.iommu, ",poll", "", "", "has no driver, want vfio-pci: modprobe vfio-pci"},
		"an IOMMU":  {"", ",poll", "", "", "has no IOMMU group: the machine needs an IOMMU that is on"},
		"remapping": {"intel-iommu,intremap=off", "", "", "", "the IOMMU does not remap interrupts (intremap=on for QEMU's intel-iommu)"},
		"files":     {has.iommu, ",poll", ",poll", lockedDown, "the kernel is locked down, and refuses the file of the function's memory"},
	} {
		t.Run(name, func(t *testing.T) {
			s := has
			s.iommu = c.iommu
			s.variables = []string{c.variable}
			machine := s.startVM(t, []string{memory(t) + c.option}, "far", lineSpec(t, 2, function(0)+c.end))
			require.Equal(t, "end: exit status 1", machine.readLine())
			machine.off()
			require.Contains(t, string(machine.log()), c.want)
		})
	}
}

// lose has one node notice that the other was killed or stopped, in the middle of a transfer.
func lose(survivor *peer, other string, kill func()) {
	survivor.t.Helper()
	does(survivor, "the survivor", "keep "+other+" 1000000")
	time.Sleep(100 * time.Millisecond) // bytes move
	start := time.Now()
	kill()
	answer := survivor.ask("lost")
	survivor.t.Logf("the survivor, %v after the other was killed or stopped: %s", time.Since(start).Round(time.Millisecond), answer)
	require.Regexp(survivor.t, "^ok .*connection reset by peer$", answer)
}

// The host survives machines that are killed, and a new one takes the old one's place while the
// old connection is still open.
func TestVMIsKilled(t *testing.T) {
	s := needVM(t, nil)
	for name, option := range map[string]string{"vfio": "", "poll": ",poll"} {
		t.Run(name, func(t *testing.T) {
			path := memory(t)
			host := startHost(t, path)
			start := func() *vm {
				v := s.startVM(t, []string{path + option}, "far", lineSpec(t, 2, function(0)+option))
				v.ready()
				return v
			}
			lose(host, "node2", start().kill)
			machine := start()
			converse(host, machine.peer)
			does(host, "host", "drop")
			machine.end()
			endHost(host)
		})
	}
}

// The same with a process of the host that is killed.
func TestVMSurvivesItsPeer(t *testing.T) {
	s := needVM(t, nil)
	path := memory(t)
	machine := s.startVM(t, []string{path}, "far", lineSpec(t, 2, function(0)))
	host := startHost(t, path)
	machine.ready()
	lose(machine.peer, "node1", host.kill)
	host = startHost(t, path)
	converse(host, machine.peer)
	does(machine.peer, "machine", "drop")
	machine.end()
	endHost(host)
}

// A machine is stopped for longer than a link waits, and goes on.
func TestVMIsStopped(t *testing.T) {
	s := needVM(t, nil)
	path := memory(t)
	machine := s.startVM(t, []string{path}, "far", lineSpec(t, 2, function(0)))
	host := startHost(t, path)
	machine.ready()
	does(machine.peer, "machine", "keep node1 1000000")
	lose(host, "node2", func() { require.NoError(t, machine.cmd.Process.Signal(syscall.SIGSTOP)) })
	require.NoError(t, machine.cmd.Process.Signal(syscall.SIGCONT))
	require.Regexp(t, "^ok .*connection reset by peer$", machine.ask("lost"))
	converse(host, machine.peer)
	does(host, "host", "drop")
	does(machine.peer, "machine", "drop")
	machine.end()
	endHost(host)
}

// A process of a machine is killed, and another one of the same machine takes its place.
func TestVMProcessIsKilled(t *testing.T) {
	s := needVM(t, nil)
	path := memory(t)
	machine := s.startVM(t, []string{path}, "far", lineSpec(t, 2, function(0)))
	host := startHost(t, path)
	machine.ready()
	lose(host, "node2", func() { require.Equal(t, "ready", machine.ask("die")) })
	converse(host, machine.peer)
	machine.interrupted()
	does(host, "host", "drop")
	machine.end()
	endHost(host)
}

// The suite of all backends passes in a machine that has both ends of a bridge.
func TestVMConformance(t *testing.T) {
	wantVM(t)
	s := needVM(t, map[string]string{"tests": testsOf(t, "../ntb/ntbivshmem")})
	for name, option := range map[string]string{"vfio": "", "mixed": ",poll"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := memory(t)
			machine := s.startVM(t, []string{path, path + option},
				"/tests", "-test.v", "-test.short", "-test.run=Functions$", "-test.timeout=10m")
			machine.passes(11)
		})
	}
}

// passes waits until the tests that a machine runs have passed, at least as many as given, and it is off.
func (v *vm) passes(least int) {
	v.t.Helper()
	var lines []string
	outcome, ended := "", false
	for !ended {
		lines = append(lines, v.readLine())
		outcome, ended = strings.CutPrefix(lines[len(lines)-1], "end: ")
	}
	said := strings.Join(lines, "\n")
	require.Equal(v.t, "ok", outcome, "%s", said)
	v.off()
	passed := strings.Count(said, "--- PASS: ")
	v.t.Log(said)
	v.t.Logf("%d tests passed, %d were skipped", passed, strings.Count(said, "--- SKIP: "))
	require.GreaterOrEqual(v.t, passed, least, "%s", said)
}
