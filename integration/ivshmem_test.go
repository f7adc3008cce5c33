//go:build linux && (amd64 || arm64)

package integration

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// memoryServer is an ntb-ivshmem-server.
type memoryServer struct {
	t     *testing.T
	paths []string
	cmd   *exec.Cmd
	log   *bufio.Reader
}

// newMemoryServer returns a server of n memories that is not started.
func newMemoryServer(t *testing.T, n int) *memoryServer {
	s := &memoryServer{t: t}
	dir := t.TempDir()
	for i := range n {
		s.paths = append(s.paths, filepath.Join(dir, fmt.Sprint(i)))
	}
	t.Cleanup(s.kill)
	return s
}

// start starts the server, and waits until it serves.
func (s *memoryServer) start(flags ...string) {
	s.t.Helper()
	s.cmd = exec.Command(filepath.Join(programs, "ntb-ivshmem-server"), append(flags, s.paths...)...)
	pipe, err := s.cmd.StderrPipe()
	require.NoError(s.t, err)
	require.NoError(s.t, s.cmd.Start())
	s.log = bufio.NewReader(pipe)
	for range s.paths {
		s.line("ends")
	}
	go func() { _, _ = io.Copy(io.Discard, s.log) }()
}

// line waits for a line of the log that contains a text.
func (s *memoryServer) line(want string) {
	s.t.Helper()
	for {
		line, err := s.log.ReadString('\n')
		require.NoError(s.t, err, "waiting for %q", want)
		if strings.Contains(line, want) {
			return
		}
	}
}

func (s *memoryServer) kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

// newApart returns nodes that have nothing in common but memories: each has a fabric of its own
// name, as on another machine.
func newApart(t *testing.T, spec func(node int) string, n int) *ring {
	r := newRing(t, "", n)
	for node := 1; node <= n; node++ {
		r.nodes[node] = startPeer(t, "node", []string{spec(node)})
	}
	return r
}

// apart returns the spec of a node of a fabric whose name is the node's own.
func apart(t *testing.T, topology string, nodes int, ends func(node int) string) func(node int) string {
	var names []string
	for range nodes {
		_, name, _ := strings.Cut(fabric(t), ":")
		names = append(names, name)
	}
	return func(node int) string {
		return fmt.Sprintf("%s:%s?node=%d&nodes=%d%s", topology, names[node-1], node, nodes, ends(node))
	}
}

// Three processes in a ring of three memories: each reaches each, and when one is killed, another
// one comes in its place. The server may have ended meanwhile.
func TestARingOfMemories(t *testing.T) {
	s := newMemoryServer(t, 3)
	s.start("--size", "8M")
	spec := apart(t, "ring", 3, func(node int) string {
		return fmt.Sprintf("&right=ivshmem:%s&left=ivshmem:%s", s.paths[node-1], s.paths[(node+1)%3])
	})
	r := newApart(t, spec, 3)
	r.ready(1, 2, 3)
	r.all(1 << 20)
	require.Equal(t, "ok", r.ask(1, "keep node2:7"))
	require.Equal(t, "ok", r.ask(1, "use 1000"))

	r.nodes[2].kill()
	until(t, "the connection has ended", func() bool { return r.ask(1, "use 1000") != "ok" })
	r.nodes[2] = startPeer(t, "node", []string{spec(2)})
	r.ready(2)
	r.all(1 << 20)
	s.kill()
	r.all(1 << 20)
	r.end()
}

// Three nodes of a mesh share one memory, and a line goes over the places of two more nodes.
func TestNodesShareAMemory(t *testing.T) {
	s := newMemoryServer(t, 1)
	s.start("--size", "16M", "--peers", "6")
	r := newApart(t, apart(t, "mesh", 3, func(node int) (ends string) {
		for other := 1; other <= 3; other++ {
			if other != node {
				ends += fmt.Sprintf("&node%d=ivshmem:%s,peers=3", other, s.paths[0])
			}
		}
		return ends
	}), 3)
	r.ready(1, 2, 3)
	r.all(1 << 20)
	r.end()
}

// A memory without room for the lanes is refused with the reason.
func TestAMemoryWithoutRoomForTheLanes(t *testing.T) {
	s := newMemoryServer(t, 1)
	s.start("--size", "1M")
	spec := apart(t, "line", 2, func(node int) string {
		return "&silence=1s&" + map[int]string{1: "right", 2: "left"}[node] + "=ivshmem:" + s.paths[0] + "&lanes=8"
	})
	r := newApart(t, spec, 2)
	r.ready(1, 2)
	until(t, "the lanes do not fit", func() bool {
		return strings.Contains(r.ask(1, "dial node2:7 1"), "lanes")
	})
	r.end()
}

// The server's options: mode and group of the socket; what is wrong is one line, and status 2.
func TestTheMemoryServersOptions(t *testing.T) {
	s := newMemoryServer(t, 1)
	s.start("--mode", "0660", "--group", fmt.Sprint(os.Getgid()))
	var st unix.Stat_t
	require.NoError(t, unix.Stat(s.paths[0], &st))
	require.EqualValues(t, 0o660, st.Mode&0o777)
	run := func(args ...string) (string, int) {
		out, err := exec.Command(filepath.Join(programs, "ntb-ivshmem-server"), args...).CombinedOutput()
		if exit, ok := err.(*exec.ExitError); ok {
			return string(out), exit.ExitCode()
		}
		require.NoError(t, err)
		return string(out), 0
	}
	for want, args := range map[string][]string{
		"give the path of a socket":  nil,
		"want a power of two":        {"--size", "3M", "x"},
		"want bytes, as in 65536":    {"--size", "64 MB", "x"},
		"\"16777217T\"":              {"--size", "16777217T", "x"},
		"power of two from 1M to 1T": {"--size", "2T", "x"},
		"want 2 to 16":               {"--peers", "17", "x"},
		"want 1 to 64":               {"--vectors", "0", "x"},
		"want an octal number":       {"--mode", "9", "x"},
		"--group":                    {"--group", "no such group", "x"},
		"unknown flag":               {"--sizes", "1"},
		"address already in use":     {s.paths[0]},
		"no such file or directory":  {filepath.Join(t.TempDir(), "a", "b")},
		"exists and is not a socket": {os.Args[0]},
	} {
		out, status := run(args...)
		require.Equal(t, 2, status, "%q: %s", args, out)
		require.Contains(t, out, want)
		require.Equal(t, 1, strings.Count(out, "\n"), out)
	}
	out, status := run("--help")
	require.Zero(t, status)
	require.Contains(t, out, "--peers N")
	require.NoError(t, s.cmd.Process.Signal(unix.SIGTERM))
	require.NoError(t, s.cmd.Wait())
	s.cmd = nil
	require.NoFileExists(t, s.paths[0])
}

// A process that is stopped, as one that gets no processor, keeps its connections over a memory of processes. One that is killed
// while it is stopped is noticed, and another one comes in its place.
func TestAStoppedProcessKeepsItsLinks(t *testing.T) {
	s := newMemoryServer(t, 1)
	s.start("--size", "8M")
	file := filepath.Join(t.TempDir(), "memory")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.Truncate(file, fileSize))
	for _, end := range []string{"file:" + file, "ivshmem:" + s.paths[0]} {
		t.Run(end[:4], func(t *testing.T) {
			spec := apart(t, "line", 2, func(node int) string { return "&silence=1s&" + map[int]string{1: "right=", 2: "left="}[node] + end })
			r := newApart(t, spec, 2)
			r.ready(1, 2)
			require.Equal(t, "ok", r.ask(1, "keep node2:7"))
			require.Equal(t, "ok", r.ask(1, "use 1000"))
			stopped := r.nodes[2].cmd.Process
			require.NoError(t, stopped.Signal(syscall.SIGSTOP))
			time.Sleep(3 * time.Second) // longer than silence may last where nobody knows
			require.NoError(t, stopped.Signal(syscall.SIGCONT))
			require.Equal(t, "ok", r.ask(1, "use 1000"))

			require.NoError(t, stopped.Signal(syscall.SIGSTOP))
			begun := time.Now()
			r.nodes[2].kill()
			until(t, "the connection has ended", func() bool { return r.ask(1, "use 1000") != "ok" })
			t.Logf("noticed after %v", time.Since(begun).Round(time.Millisecond))
			begun = time.Now()
			r.nodes[2] = startPeer(t, "node", []string{spec(2)})
			r.ready(2)
			r.all(1 << 20)
			t.Logf("another one served after %v", time.Since(begun).Round(time.Millisecond))
			r.end()
		})
	}
}
