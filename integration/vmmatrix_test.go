//go:build linux

package integration

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/ivshmem"
	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/stretchr/testify/require"
)

// starts has a machine that is a runner start a program.
func (v *vm) starts(words ...string) {
	v.t.Helper()
	line, err := json.Marshal(words)
	require.NoError(v.t, err)
	require.Equal(v.t, "started", v.ask(string(line)))
}

// withLibraries returns the files of a program and of the libraries that it needs.
func withLibraries(t *testing.T, program string) map[string]string {
	t.Helper()
	out, err := exec.Command("ldd", program).CombinedOutput()
	require.NoError(t, err, "%s", out)
	files := map[string]string{filepath.Base(program): program}
	for _, path := range regexp.MustCompile(`/\S+`).FindAllString(string(out), -1) {
		files[path[1:]] = path
	}
	return files
}

// Redis in a machine and its clients at the host meet by proxies, and sdp-perf measures between the two.
func TestVMPrograms(t *testing.T) {
	wantMatrix(t)
	files := withLibraries(t, tool(t, "redis-server"))
	for _, name := range []string{"sdp-proxy", "sdp-perf"} {
		files[name] = programOf(t, filepath.Join("..", "cmd", name))
	}
	s := needMatrix(t, files)
	path := memory(t)
	s.variables = []string{"SDP_FABRIC=" + lineSpec(t, 2, function(0))}
	machine := s.startVM(t, []string{path}, "runner")
	machine.ready()
	machine.starts("/redis-server", "--port", "0", "--unixsocket", "/tmp/redis.sock", "--dir", "/tmp",
		"--save", "", "--appendonly", "no", "--daemonize", "no")
	machine.starts("/sdp-perf", "-s", "--transport", "sdp", "-p", "7000") // owns the link
	machine.starts("SDP_FABRIC=line:"+fabrictest.Name(t)+"?node=2", "/sdp-proxy", "--map", "sdp://:6379=unix:///tmp/redis.sock")

	variable := "SDP_FABRIC=" + lineSpec(t, 1, path)
	front := startProxyIn(t, variable, nil, nil, "tcp://127.0.0.1:0=sdp://node2:6379")
	address := strings.TrimPrefix(front.listening[0], "tcp://")
	until(t, "Redis answers", func() bool {
		_, port, _ := strings.Cut(address, ":")
		out, err := exec.Command(tool(t, "redis-cli"), "-p", port, "PING").CombinedOutput()
		return err == nil && strings.TrimSpace(string(out)) == "PONG"
	})
	redisAnswers(t, address, func(*exec.Cmd) {})
	front.stop()
	perf := start(t, filepath.Join(programs, "sdp-perf"),
		[]string{"lat", "-c", "node2", "-p", "7000", "-t", "1"}, withEnv(variable))
	require.Zero(t, perf.status(), perf.out.String())
	t.Logf("sdp-perf at the host, its server in the machine:\n%s", perf.out.String())
	machine.end()
}

// A machine without interrupts has a file in common with its host.
func TestVMAndFile(t *testing.T) {
	s := needMatrix(t, nil)
	path := "file:" + filepath.Join(t.TempDir(), "memory")
	require.NoError(t, os.WriteFile(path[len("file:"):], nil, 0o600))
	require.NoError(t, os.Truncate(path[len("file:"):], fileSize))
	machine := s.startVM(t, []string{path + ",poll"}, "far", lineSpec(t, 2, function(0)+",poll"))
	host := startPeer(t, "far", []string{"line:" + fabrictest.Name(t) + "?node=1&nodes=2&right=" + path})
	require.Equal(t, "ready", host.readLine())
	machine.ready()
	converse(host, machine.peer)
	machine.end()
	endHost(host)
}

// The suite of all net.Conns passes in a machine that has both ends of a bridge.
func TestVMNettest(t *testing.T) {
	wantMatrix(t)
	s := needMatrix(t, map[string]string{"tests": testsOf(t, "../sdp")})
	for name, option := range map[string]string{"vfio": "", "mixed": ",poll"} {
		t.Run(name, func(t *testing.T) {
			path := memory(t)
			machine := s.startVM(t, []string{path, path + option}, "/tests", "-test.v", "-test.run=^Test(Conn|Words)OfFunctions$", "-test.timeout=10m")
			machine.passes(10)
		})
	}
}

// A ring of a process of the host and two machines, nodes 1 to 3. Where a wire is missing, its ends reach
// each other through the node in the middle.
func TestVMRing(t *testing.T) {
	s := needMatrix(t, nil)
	for name, missing := range map[string]int{"whole": 0, "through a machine": 3, "through the host": 2} {
		t.Run(name, func(t *testing.T) {
			right := []string{1: memory(t), 2: memory(t), 3: memory(t)} // by node
			left := []string{1: right[3], 2: right[1], 3: right[2]}
			if missing > 0 {
				right[missing] = memory(t) // its other end is nowhere
			}
			spec := func(node int, left, right string) string {
				return fmt.Sprintf("ring:%s?nodes=3&failover=1&node=%d&left=ivshmem:%s&right=ivshmem:%s", fabrictest.Name(t), node, left, right)
			}
			one := startPeer(t, "far", []string{spec(1, left[1], right[1])})
			require.Equal(t, "ready", one.readLine())
			two := s.startVM(t, []string{left[2], right[2]}, "far", spec(2, function(0), function(1)))
			three := s.startVM(t, []string{left[3], right[3] + ",poll"}, "far", spec(3, function(0), function(1)+",poll"))
			two.ready()
			three.ready()
			nodes := []*peer{1: one, 2: two.peer, 3: three.peer}
			for i, from := range nodes[1:] {
				for to := 1; to <= 3; to++ {
					if to != i+1 {
						does(from, fmt.Sprint("node ", i+1), fmt.Sprintf("echo node%d 100", to))
						does(from, fmt.Sprint("node ", i+1), fmt.Sprintf("send node%d 8388608", to))
					}
				}
			}
			three.end()
			two.end()
			endHost(one)
		})
	}
}

// meshSpec returns the fabric of a node of three, a mesh in one memory. end returns its end for each other node.
func meshSpec(t *testing.T, node int, end func(other int) string) string {
	t.Helper()
	text := fmt.Sprintf("mesh:%s?nodes=3&node=%d", fabrictest.Name(t), node)
	for other := 1; other <= 3; other++ {
		if other != node {
			text += fmt.Sprintf("&node%d=ivshmem:%s,peers=3", other, end(other))
		}
	}
	return text
}

// A machine, another one and the host are a mesh in one memory.
func TestVMsShareAMemory(t *testing.T) {
	s := needMatrix(t, nil)
	path := memoryFor(t, 6)
	spec := func(node int, end func(other int) string) string { return meshSpec(t, node, end) }
	one := startPeer(t, "far", []string{spec(1, func(int) string { return path })})
	require.Equal(t, "ready", one.readLine())
	both := []string{path, path}
	two := s.startVM(t, both, "far", spec(2, func(other int) string { return function(other / 2) }))   // 1 and 3
	three := s.startVM(t, both, "far", spec(3, func(other int) string { return function(other - 1) })) // 1 and 2
	two.ready()
	three.ready()
	converse(one, two.peer)
	does(one, "node 1", "send node3 8388608")
	does(two.peer, "node 2", "send node3 8388608")
	does(three.peer, "node 3", "send node1 8388608")
	two.end()
	three.end()
	endHost(one)
}

// A machine whose functions have no interrupts is in a server's memory beside another machine and a process of the
// host. It is killed, stopped and started again, and the other two use each other meanwhile.
func TestVMWithoutInterrupts(t *testing.T) {
	s := needVM(t, nil)
	f, err := os.CreateTemp("/dev/shm", "ntbnet-test-")
	require.NoError(t, err)
	file := f.Name()
	t.Cleanup(func() { os.Remove(file) })
	require.NoError(t, errors.Join(f.Truncate(fileSize), f.Close()))
	path := serveMemory(t, ivshmem.Options{File: file, Peers: 6, Vectors: 1})
	host := startPeer(t, "far", []string{meshSpec(t, 1, func(int) string { return path })})
	require.Equal(t, "ready", host.readLine())
	two := s.startVM(t, []string{path, path}, "far", meshSpec(t, 2, func(other int) string { return function(other / 2) }))
	plain := func() *vm {
		ends := []string{"file:" + file + ",poll", "file:" + file + ",poll"}
		v := s.startVM(t, ends, "far", meshSpec(t, 3, func(other int) string { return function(other-1) + ",poll" }))
		v.ready()
		return v
	}
	two.ready()
	three := plain()
	all := func() {
		for node, p := range map[string]*peer{"node1": host, "node2": two.peer, "node3": three.peer} {
			for _, other := range []string{"node1", "node2", "node3"} {
				if other != node {
					does(p, node, "echo "+other+" 300")
					does(p, node, "send "+other+" 8388608")
				}
			}
		}
	}
	all()
	lose(host, "node3", three.kill)
	does(host, "host", "drop")
	does(host, "host", "send node2 8388608")
	three = plain()
	all()
	lose(two.peer, "node3", func() { require.NoError(t, three.cmd.Process.Signal(syscall.SIGSTOP)) })
	does(two.peer, "node 2", "drop")
	does(two.peer, "node 2", "echo node1 300")
	require.NoError(t, three.cmd.Process.Signal(syscall.SIGCONT))
	all()
	two.interrupted()
	three.end()
	two.end()
	endHost(host)
}

// A contender is a way from one node to another.
type contender struct {
	name string
	from *peer
	to   string // node or address
}

// contend measures ways in turn, in rounds, and logs a table of medians.
func contend(t *testing.T, what string, ways []contender) {
	t.Helper()
	const rounds = 5
	var table strings.Builder
	fmt.Fprintf(&table, "%s, median of %d rounds in turn:\n| way | round trip of 64 B | one way |\n|---|---|---|\n", what, rounds)
	trips, rates := make([][]time.Duration, len(ways)), make([][]int, len(ways))
	for range rounds {
		for i, w := range ways {
			trip, err := time.ParseDuration(measured(w.from, "echo "+w.to+" 2000", `round trip (\S+),`))
			require.NoError(t, err)
			rate, err := strconv.Atoi(measured(w.from, "stream "+w.to+" 67108864", `(\d+) MB/s`))
			require.NoError(t, err)
			trips[i], rates[i] = append(trips[i], trip), append(rates[i], rate)
		}
	}
	for i, w := range ways {
		fmt.Fprintf(&table, "| %s | %v | %d MB/s |\n", w.name, median(trips[i]), median(rates[i]))
	}
	t.Log(table.String())
}

func median[T cmp.Ordered](x []T) T { return slices.Sorted(slices.Values(x))[len(x)/2] }

// measured asks, and returns what the group in the form matches of the answer.
func measured(p *peer, question, form string) string {
	p.t.Helper()
	answer := p.ask(question)
	found := regexp.MustCompile("^ok .*?" + form).FindStringSubmatch(answer)
	require.NotNil(p.t, found, "%s: %s", question, answer)
	return found[1]
}

// noVsock says why vsock is not among the ways.
func noVsock(t *testing.T) {
	t.Helper()
	_, err := os.Stat("/dev/vhost-vsock")
	t.Logf("vsock is not measured: /dev/vhost-vsock: %v", err)
}

// What a machine and its host could use in place of this transport, beside it.
func TestVMAndHostBesideTCP(t *testing.T) {
	s := needMatrix(t, nil)
	s.network = hostNetwork(t)
	vfio, poll := memory(t), memory(t)
	line := "line:" + fabrictest.Name(t) + "?nodes=3&node="
	machine := s.startVM(t, []string{vfio, poll + ",poll"}, "far",
		line+"2&left=ivshmem:"+function(0)+"&right=ivshmem:"+function(1)+",poll", machineAddress)
	one := startPeer(t, "far", []string{line + "1&right=ivshmem:" + vfio, hostAddress})
	three := startPeer(t, "far", []string{line + "3&left=ivshmem:" + poll})
	require.Equal(t, "ready", one.readLine())
	require.Equal(t, "ready", three.readLine())
	machine.ready()
	noVsock(t)
	contend(t, "host to machine (TCG)", []contender{
		{"SDP by VFIO", one, "node2"}, {"SDP, the machine polls", three, "node2"}, {"TCP by virtio-net, TAP", one, machineAddress},
	})
	contend(t, "machine (TCG) to host", []contender{
		{"SDP by VFIO", machine.peer, "node1"}, {"SDP, the machine polls", machine.peer, "node3"}, {"TCP by virtio-net, TAP", machine.peer, hostAddress},
	})
	machine.end()
	endHost(one)
	endHost(three)
}

// The same for two machines.
func TestVMAndVMBesideTCP(t *testing.T) {
	s := needMatrix(t, nil)
	path := []string{memory(t)}
	one, two := s, s
	one.network, two.network = machineNetworks(t)
	first := one.startVM(t, path, "far", lineSpec(t, 1, function(0)), hostAddress)
	until(t, "the network's socket", func() bool { _, err := os.Stat(one.network.socket); return err == nil })
	second := two.startVM(t, path, "far", lineSpec(t, 2, function(0)), machineAddress)
	first.ready()
	second.ready()
	noVsock(t)
	contend(t, "machine to machine (TCG)", []contender{
		{"SDP by VFIO", first.peer, "node2"}, {"TCP by virtio-net, socket", first.peer, machineAddress},
	})
	first.end()
	second.end()
}
