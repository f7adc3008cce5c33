//go:build linux

package integration

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"
)

// testTimeout is how long a test waits for what must happen. No test waits for it to
// pass.
const testTimeout = 60 * time.Second

// process is a program that a test started. It is killed when the test ends, with
// all that it started. Its output is shown if the test failed.
type process struct {
	t      testing.TB
	cmd    *exec.Cmd
	out    output        // stdout and stderr
	exited chan struct{} // closed when it has ended and out is complete
}

// option changes a command before it starts.
type option func(*exec.Cmd)

// withEnv adds variables, "NAME=value".
func withEnv(vars ...string) option {
	return func(c *exec.Cmd) { c.Env = append(c.Environ(), vars...) }
}

func start(t testing.TB, path string, args []string, options ...option) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(path, args...), exited: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	// The process has a group of its own, so that its children can be killed with
	// it. If the tests die, so does it.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	for _, o := range options {
		o(p.cmd)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.cmd.Wait() // the status is in ProcessState
		close(p.exited)
	}()
	t.Cleanup(func() {
		syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		<-p.exited
		if t.Failed() {
			t.Logf("%s %q wrote:\n%s", filepath.Base(path), args, p.out.String())
		}
	})
	return p
}

// waitFor waits until the output matches re n times, and returns all matches with
// their groups.
func (p *process) waitFor(re *regexp.Regexp, n int) [][]string {
	p.t.Helper()
	deadline := time.Now().Add(testTimeout)
	for {
		over := p.over() // before the match: then the output is complete
		if m := re.FindAllStringSubmatch(p.out.String(), -1); len(m) >= n {
			return m
		}
		if over || time.Now().After(deadline) {
			p.t.Fatalf("%s did not write %d times %q", p.cmd.Path, n, re)
		}
		time.Sleep(time.Millisecond)
	}
}

func (p *process) over() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("%s: %v", p.cmd.Path, err)
	}
}

// status waits for the end and returns the exit status.
func (p *process) status() int {
	p.t.Helper()
	select {
	case <-p.exited:
	case <-time.After(testTimeout):
		p.t.Fatalf("%s does not end", p.cmd.Path)
	}
	return p.cmd.ProcessState.ExitCode()
}

// output collects what a process writes.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// eventually waits until ok returns true.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(testTimeout); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("did not happen in time: %s", what)
		}
	}
}

// shortDir returns a directory whose name leaves room for the name of a Unix
// socket.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "it")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
