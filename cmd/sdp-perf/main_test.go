package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ntbnet/ntbnet/internal/fabric"
	"github.com/ntbnet/ntbnet/internal/fabrictest"
	"github.com/ntbnet/ntbnet/internal/hostdir"
	"github.com/ntbnet/ntbnet/internal/perf"
)

// asProgram makes the test binary behave as sdp-perf. The second process that it
// starts inherits the variable.
const asProgram = "SDP_PERF_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(fabrictest.Main(m))
}

// program is a running sdp-perf. It and its child share the standard error, which
// ends when both have ended. So a child that stays behind fails the test.
type program struct {
	*exec.Cmd
	tmp            string // its temporary directory, empty at first
	stdout, stderr bytes.Buffer
	errPipe        *os.File
	begun          time.Time
}

// outlive is how long a child may stay after its parent before a test fails.
const outlive = 60 * time.Second

func newProgram(t *testing.T, env []string, args ...string) *program {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	p := &program{Cmd: exec.Command(exe, args...), tmp: t.TempDir()}
	// The race detector's runtime would sleep for a second at every exit.
	p.Env = append(os.Environ(), asProgram+"=1", "TMPDIR="+p.tmp, "GORACE=atexit_sleep_ms=0")
	p.Env = append(p.Env, env...)
	p.Stdout = &p.stdout
	return p
}

func (p *program) start(t *testing.T) {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer w.Close()
	p.errPipe, p.Stderr, p.begun = r, w, time.Now().Add(-time.Second) // files have a coarser clock
	require.NoError(t, p.Start())
	t.Cleanup(func() {
		p.Process.Kill()
		r.Close()
	})
}

// run returns the exit status.
func (p *program) run(t *testing.T) int {
	t.Helper()
	p.start(t)
	return p.wait(t)
}

// wait waits until the program and its child have ended. It returns the exit
// status, or -1 for a signal.
func (p *program) wait(t *testing.T) int {
	t.Helper()
	read := make(chan error, 1)
	go func() {
		_, err := p.stderr.ReadFrom(p.errPipe)
		read <- err
	}()
	p.Wait() // the state says how it ended
	require.NoError(t, p.errPipe.SetReadDeadline(time.Now().Add(outlive)))
	require.NoError(t, <-read, "a child outlives its parent")
	left, err := os.ReadDir(p.tmp)
	require.NoError(t, err)
	assert.Empty(t, left, "left in the temporary directory")
	status := p.ProcessState.ExitCode()
	if status >= 0 {
		assert.Empty(t, p.fabrics(t), "left of the program's fabrics")
	} else { // a killed program cannot clean up
		t.Cleanup(func() {
			for _, dir := range p.fabrics(t) {
				eventually(t, "the last process lets go of "+dir, func() bool { return fabric.Remove(filepath.Base(dir)) == nil })
			}
		})
	}
	return status
}

// fabrics returns the directories of fabrics that the program has made and not
// removed.
func (p *program) fabrics(t *testing.T) (dirs []string) {
	t.Helper()
	for _, base := range []string{"/tmp/ntbnet-*", "/run/user/*/ntbnet"} {
		found, err := filepath.Glob(fmt.Sprintf("%s/perf-%d-*", base, p.Process.Pid))
		require.NoError(t, err)
		for _, dir := range found {
			// An earlier process may have had the same number.
			if info, err := os.Stat(dir); err == nil && !info.ModTime().Before(p.begun) {
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, 3*time.Minute, 5*time.Millisecond, what)
}

// socketExists reports whether the child listens.
func (p *program) socketExists() bool {
	found, _ := filepath.Glob(filepath.Join(p.tmp, "sdp-perf-*", "socket"))
	return len(found) == 1
}

func TestDefaultRunComparesAllTransports(t *testing.T) {
	p := newProgram(t, nil, "--duration", "5ms", "--rounds", "2")
	require.Zero(t, p.run(t), p.stderr.String())
	assert.Empty(t, p.stderr.String(), "no progress when nobody looks")
	out := p.stdout.String()
	for _, row := range []string{
		"round trip, 64 B  sdp ", "round trip, 64 B  tcp ", "round trip, 64 B  unix ",
		"one way, 64 KiB   sdp ", "one way, 64 KiB   tcp ", "one way, 64 KiB   unix ",
		"against tcp", "against unix",
		"every byte of 32 MiB each way: sdp, tcp, unix.",
	} {
		assert.Contains(t, out, row)
	}
}

func TestJSONHasWhatTheTableHas(t *testing.T) {
	p := newProgram(t, nil, "--json", "--duration", "5ms", "--rounds", "2",
		"--connections", "2", "--size", "1K", "--transports", "unix,tcp")
	require.Zero(t, p.run(t), p.stderr.String())
	var r perf.Report
	dec := json.NewDecoder(&p.stdout)
	dec.DisallowUnknownFields()
	require.NoError(t, dec.Decode(&r))
	assert.Equal(t, perf.ThisHost(), r.Host)
	assert.Equal(t, 2, r.Rounds)
	assert.Equal(t, 2, r.Connections)
	assert.Equal(t, []string{"unix", "tcp"}, r.Verified.Transports)
	require.Len(t, r.Tests, 2)
	for _, test := range r.Tests {
		assert.Equal(t, 1024, test.Size)
		require.Len(t, test.Results, 2)
		assert.Contains(t, test.Results[0].TimesFasterThan, "tcp")
		assert.Contains(t, test.Results[1].TimesFasterThan, "unix")
	}
}

func TestOnlyAndProfile(t *testing.T) {
	profile := filepath.Join(t.TempDir(), "cpu")
	p := newProgram(t, nil, "--only", "throughput", "--transports", "tcp",
		"--duration", "5ms", "--rounds", "1", "--cpuprofile", profile)
	require.Zero(t, p.run(t), p.stderr.String())
	assert.Contains(t, p.stdout.String(), "one way")
	assert.NotContains(t, p.stdout.String(), "round trip")
	info, err := os.Stat(profile)
	require.NoError(t, err)
	assert.Positive(t, info.Size())
}

// startServer starts a server, and returns when it listens, with its address.
func startServer(t *testing.T, where string) (srv *program, address string) {
	t.Helper()
	srv = newProgram(t, nil, "server", "--listen", where)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { r.Close() })
	srv.Stdout = w
	srv.start(t)
	w.Close()
	line := make([]byte, 200)
	n, err := r.Read(line)
	require.NoError(t, err)
	address, ok := strings.CutPrefix(strings.TrimSpace(string(line[:n])), "listening on ")
	require.True(t, ok, "%q", line[:n])
	return srv, address
}

func TestServerAndClientByHand(t *testing.T) {
	for _, where := range []string{"sdp://localhost:0", "tcp://127.0.0.1:0", "unix://" + filepath.Join(t.TempDir(), "s")} {
		t.Run(strings.SplitN(where, ":", 2)[0], func(t *testing.T) {
			srv, address := startServer(t, where)
			for range 2 { // one run after the other
				c := newProgram(t, nil, "client", "--connect", address, "--duration", "5ms", "--rounds", "1")
				require.Zero(t, c.run(t), c.stderr.String())
				assert.Contains(t, c.stdout.String(), "round trip, 64 B")
				assert.Contains(t, c.stdout.String(), "one way, 64 KiB")
				assert.NotContains(t, c.stdout.String(), "against")
			}
			require.NoError(t, srv.Process.Signal(os.Interrupt))
			assert.Zero(t, srv.wait(t), srv.stderr.String())
		})
	}
}

// A client of another version is refused, and the server says so.
func TestTheServerSaysWhichVersionItRefuses(t *testing.T) {
	srv, address := startServer(t, "tcp://127.0.0.1:0")
	c, err := net.Dial("tcp", strings.TrimPrefix(address, "tcp://"))
	require.NoError(t, err)
	defer c.Close()
	hello := make([]byte, 32) // of version 1 or 2: without a number
	copy(hello, "PERF\x01")
	_, err = c.Write(hello)
	require.NoError(t, err)
	answer, err := io.ReadAll(c) // to the end, which the server makes
	require.NoError(t, err)
	require.Len(t, answer, 16)
	require.NoError(t, srv.Process.Signal(os.Interrupt))
	assert.Zero(t, srv.wait(t))
	assertOneLine(t, srv.stderr.String(), fmt.Sprintf("version %d here, 0 there", answer[8]))
}

func TestBadInputIsOneLineAndStatus2(t *testing.T) {
	used, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer used.Close()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	nobody := free.Addr().String()
	free.Close()

	for _, c := range []struct {
		args string
		says string
	}{
		{"frob", `unknown command "frob": use server, client`},
		{"--frob", "unknown flag: --frob (see sdp-perf --help)"},
		{"--json extra", `"extra": unexpected argument`},
		{"--size 0", "use 1 to 16M bytes"},
		{"--size -1", "use 1 to 16M bytes"},
		{"--size 17M", "use 1 to 16M bytes"},
		{"--size 64X", "use 1 to 16M bytes"},
		{"--size 99999999999999999999", "use 1 to 16M bytes"},
		{"--size 9223372036854775807K", "use 1 to 16M bytes"},
		{"--rounds 0", "--rounds 0: use a number from 1 to 1000"},
		{"--rounds x", "--rounds"},
		{"--duration 0s", "--duration 0s: use a time from 1ms to 1m"},
		{"--duration 5", "--duration"},
		{"--duration 2m", "use a time from 1ms to 1m"},
		{"--connections 0", "--connections 0: use a number from 1 to 1000"},
		{"--connections 17 --size 16M", "use fewer or smaller, 256 MiB together"},
		{"--only speed", "--only speed: use latency or throughput"},
		{"--transports udp", `unknown transport "udp": use sdp, tcp, unix`},
		{"--transports tcp,tcp", "tcp is there twice"},
		{"--transports=", "name at least one of sdp, tcp, unix"},
		{"--transports tcp --cpuprofile /nonexistent/f", "--cpuprofile: open /nonexistent/f"},
		{"child", "is started by sdp-perf itself"},
		{"server", "say where: --listen sdp://localhost:7000"},
		{"server --listen localhost:7000", "write it as sdp://localhost:7000"},
		{"server --listen udp://localhost:7000", "use one of sdp, tcp, unix"},
		{"server --listen tcp://localhost:70000", "use a number from 0 to 65535"},
		{"server --listen tcp://" + used.Addr().String(), "address already in use"},
		{"server --listen unix:///nonexistent/s", "no such file or directory"},
		{"server --listen unix:///tmp/" + strings.Repeat("a", 110), "a Unix socket takes at most 107"},
		{"server --size 4", "unknown flag: --size"},
		{"doctor --fabric shop", "doctor is a command of ntbnet: ntbnet doctor (go build"},
		{"ls --json", "ls is a command of ntbnet: ntbnet ls (go build"},
		{"bench --rounds 3", "bench is a benchmark: cd benchmarks && go test -run '^$' -bench 'Latency|"},
		{"topology", "topology is a command of ntbnet: ntbnet topology (go build"},
		{"client", "say where: --connect sdp://localhost:7000"},
		{"client --connect unix://", "no path"},
		{"client --connect unix:///tmp/" + strings.Repeat("a", 110), "a Unix socket takes at most 107"},
		{"client --connect tcp://" + nobody, "connection refused (start one there: sdp-perf server --listen tcp://" + nobody + ")"},
		{"client --connect sdp://localhost:9", fmt.Sprintf("connect: connection refused: nobody listens there in fabric %s of user %s (uid %d) (start one there", os.Getenv(fabric.EnvFabric), hostdir.UserName(os.Geteuid()), os.Geteuid())},
		{"client --connect unix:///nonexistent/s", "no such file or directory (start one there"},
		{"client --connect sdp://no-such-host:7000", "no route to host\n"}, // a server there would not help
	} {
		t.Run(c.args, func(t *testing.T) {
			p := newProgram(t, nil, strings.Fields(c.args)...)
			assert.Equal(t, 2, p.run(t))
			assertOneLine(t, p.stderr.String(), c.says)
			assert.Empty(t, p.stdout.String())
		})
	}
}

func assertOneLine(t *testing.T, text, says string) {
	t.Helper()
	assert.True(t, strings.HasPrefix(text, "sdp-perf: "), "%q", text)
	assert.Equal(t, 1, strings.Count(text, "\n"), "%q", text)
	assert.True(t, strings.HasSuffix(text, "\n"), "%q", text)
	assert.Contains(t, text, says)
}

func TestAFailureIsOneLineAndStatus1(t *testing.T) {
	t.Run("no place for the socket", func(t *testing.T) {
		p := newProgram(t, []string{"TMPDIR=/nonexistent"})
		assert.Equal(t, 1, p.run(t))
		assertOneLine(t, p.stderr.String(), "/nonexistent")
	})
	t.Run("the server is something else", func(t *testing.T) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer ln.Close()
		go func() {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			c.Write([]byte("SSH-2.0-OpenSSH_9.6 and so on\r\n"))
			io.Copy(io.Discard, c)
			c.Close()
		}()
		p := newProgram(t, nil, "client", "--connect", "tcp://"+ln.Addr().String())
		assert.Equal(t, 1, p.run(t))
		assertOneLine(t, p.stderr.String(), "not an sdp-perf of this version")
	})
	t.Run("a reader that has gone", func(t *testing.T) {
		r, w, err := os.Pipe()
		require.NoError(t, err)
		r.Close()
		defer w.Close()
		p := newProgram(t, nil, "--help")
		p.Stdout = w
		assert.NotZero(t, p.run(t))
	})
}

func TestHelpIsEnoughToStart(t *testing.T) {
	for _, c := range []struct{ args, want []string }{
		{[]string{"--help"}, []string{"sdp-perf [flags]", "server --listen", "client --connect", "sdp://localhost:7000", "Exit status"}},
		{[]string{"-h"}, []string{"sdp-perf [flags]"}},
		{[]string{"help"}, []string{"sdp-perf [flags]", "--version"}},
		{[]string{"--version"}, []string{"sdp-perf ", ", commit "}},
		{[]string{"version"}, []string{"sdp-perf ", ", commit "}},
		{[]string{"server", "--help"}, []string{"Usage: sdp-perf server --listen", "sdp://localhost:7000"}},
		{[]string{"client", "--help"}, []string{"Usage: sdp-perf client --connect", "sdp://localhost:7000", "--rounds"}},
	} {
		p := newProgram(t, nil, c.args...)
		require.Zero(t, p.run(t), c.args)
		assert.Empty(t, p.stderr.String())
		out := p.stdout.String()
		for _, s := range c.want {
			assert.Contains(t, out, s, c.args)
		}
		assert.NotContains(t, out, childCommand, "it is nobody's business")
	}
}
