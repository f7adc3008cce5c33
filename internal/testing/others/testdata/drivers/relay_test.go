// Package drivers tests that database drivers find out which connections of a pool the server has
// closed. A relay, a process between a server on a Unix socket and the driver, takes connections of
// network tcp, and passes their data on. A client of it meets what it would meet of the server, had
// that called net.Listen.
package drivers

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// timeout is how long anything may take.
const timeout = 60 * time.Second

const (
	targetVariable = "RELAY_TARGET" // the server's socket
	listenVariable = "RELAY_LISTEN" // where the relay listens
)

// size is how many connections are in the pool, and times how often they are closed.
const size, times = 5, 10

// TestMain runs the tests, or the relay if startRelay has started this process.
func TestMain(m *testing.M) {
	target := os.Getenv(targetVariable)
	if target == "" {
		os.Exit(m.Run())
	}
	go func() { // the test is gone when standard input ends
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	fmt.Fprintln(os.Stderr, "relay:", serve(os.Getenv(listenVariable), target))
	os.Exit(1)
}

// serve relays. It says on standard output where it listens, and after each connection that
// the server has ended, when the client's has been closed.
func serve(address, target string) error {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Println("listening", ln.Addr())
	for {
		client, err := ln.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer client.Close()
			server, err := net.Dial("unix", target)
			if err != nil {
				return
			}
			defer server.Close()
			go func() {
				io.Copy(server, client)
				server.Close()
			}()
			if _, err := io.Copy(client, server); !errors.Is(err, net.ErrClosed) {
				client.Close()
				fmt.Println("closed")
			}
		}()
	}
}

// relay is a relay's process.
type relay struct {
	addr string // where it listens

	t      *testing.T
	target string
	cmd    *exec.Cmd
	stdin  io.Closer
	lines  chan string // of its standard output
}

// startRelay starts a relay to a server's socket. It ends with the test.
func startRelay(t *testing.T, target string) *relay {
	r := &relay{addr: "127.0.0.1:0", t: t, target: target}
	r.start()
	t.Cleanup(func() {
		r.stdin.Close()
		r.wait()
	})
	return r
}

func (r *relay) start() {
	r.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		r.t.Fatal(err)
	}
	r.cmd = exec.Command(exe)
	r.cmd.Env = append(os.Environ(), targetVariable+"="+r.target, listenVariable+"="+r.addr)
	r.cmd.Stderr = os.Stderr
	if r.stdin, err = r.cmd.StdinPipe(); err != nil {
		r.t.Fatal(err)
	}
	out, w, err := os.Pipe()
	if err != nil {
		r.t.Fatal(err)
	}
	r.cmd.Stdout = w
	err = r.cmd.Start()
	w.Close()
	if err != nil {
		r.t.Fatal(err)
	}
	lines := make(chan string, 1000)
	r.lines = lines
	go func() {
		defer close(lines)
		defer out.Close()
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
	}()
	r.addr = strings.TrimPrefix(r.line(), "listening ")
}

// line is the next line that the relay says.
func (r *relay) line() string {
	r.t.Helper()
	select {
	case line, ok := <-r.lines:
		if !ok {
			r.t.Fatal("the relay has ended")
		}
		return line
	case <-time.After(timeout):
		r.t.Fatal("the relay says nothing")
	}
	return ""
}

// waitClosed returns when the relay has closed n more connections to clients, because the
// server had closed them.
func (r *relay) waitClosed(n int) {
	r.t.Helper()
	for range n {
		if line := r.line(); line != "closed" {
			r.t.Fatalf("the relay says %q", line)
		}
	}
}

// restart kills the relay, and starts another in its place.
func (r *relay) restart() {
	r.t.Helper()
	r.cmd.Process.Signal(syscall.SIGKILL)
	r.wait()
	r.start()
}

func (r *relay) wait() {
	r.cmd.Wait() // its error is how the process was made to end
	r.stdin.Close()
}

// server is a server's process, which makes a socket.
type server struct {
	socket string

	path string
	args []string
	cmd  *exec.Cmd
	out  *strings.Builder // what it says; complete when done is closed
	done chan struct{}
}

// newServer starts a server. It ends with the test.
func newServer(t *testing.T, socket, path string, args ...string) *server {
	t.Helper()
	s := &server{socket: socket, path: path, args: args}
	s.start(t)
	t.Cleanup(func() { s.stop(t) })
	return s
}

// start starts the server, and returns when a client connects to it.
func (s *server) start(t *testing.T) {
	t.Helper()
	cmd, out, done := exec.Command(s.path, s.args...), &strings.Builder{}, make(chan struct{})
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.cmd, s.out, s.done = cmd, out, done
	go func() { cmd.Wait(); close(done) }()
	for end := time.Now().Add(timeout); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("unix", s.socket)
		if err == nil {
			c.Close()
			return
		}
		select {
		case <-done:
			t.Fatalf("%s has ended: %s", s.path, out)
		default:
		}
		if time.Now().After(end) {
			t.Fatalf("%s does not listen: %v", s.path, err)
		}
	}
}

// stop stops the server, as an administrator does.
func (s *server) stop(t *testing.T) {
	t.Helper()
	s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.done:
	case <-time.After(timeout):
		s.cmd.Process.Kill()
		<-s.done
		t.Errorf("%s did not end: %s", s.path, s.out)
	}
}

// tool is the path of a program, which the test needs.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skip(err)
	}
	return path
}

// shortDir is a directory beside the test, so that it is removed with the copy of the suite also
// if the test is interrupted. Its name is short enough for a Unix socket in it.
func shortDir(t *testing.T) string {
	t.Helper()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(here, "d")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
