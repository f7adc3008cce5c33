package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ntbnet/ntbnet/internal/hostdir"
	"github.com/ntbnet/ntbnet/internal/perf/meter"
	"github.com/ntbnet/ntbnet/internal/perf/report"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
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
	tmp     string // its temporary directory, empty at first
	stdout  lockedBuffer
	stderr  bytes.Buffer
	errPipe *os.File
	copied  chan struct{} // closed when stdout has all, or nil
	begun   time.Time
}

// lockedBuffer is a buffer that is read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  []byte
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b = append(l.b, b...)
	return len(b), nil
}

func (l *lockedBuffer) Bytes() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.b)
}

func (l *lockedBuffer) String() string { return string(l.Bytes()) }

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
	if p.copied != nil {
		<-p.copied
	}
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
				eventually(t, "the last process lets go of "+dir, func() bool { return spec.Remove(filepath.Base(dir)) == nil })
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
	p := newProgram(t, nil, "-t", "0.5")
	require.Zero(t, p.run(t), p.stderr.String())
	assert.Empty(t, p.stderr.String(), "no progress when nobody looks")
	out := p.stdout.String()
	for _, says := range []string{
		"5 of 5 rounds", " sdp ", " tcp ", " unix ", "p99", "64 B round trip, µs", "64 KiB one way, GB/s", "limit, one way",
		"each byte of 32 MiB each way", "thers used ", "Verdict: SDP was faster than TCP in each round in ",
	} {
		assert.Contains(t, out, says)
	}
	for line := range strings.Lines(out) {
		if !strings.Contains(line, "p99 ") && !strings.Contains(line, ", µs") && !strings.Contains(line, ", GB/s") { // figures may be long
			assert.LessOrEqual(t, utf8.RuneCountInString(line), 81, line)
		}
	}
}

func TestDefaultRunAsJSONAndAPicture(t *testing.T) {
	picture := filepath.Join(t.TempDir(), "svg")
	p := newProgram(t, nil, "-J", "-t", "0.5", "--svg", picture)
	require.Zero(t, p.run(t), p.stderr.String())
	var c report.Comparison
	require.NoError(t, json.Unmarshal(p.stdout.Bytes(), &c))
	assert.Equal(t, 5, c.Rounds)
	require.Len(t, c.Rows, 8)
	for _, row := range c.Rows[:6] {
		for _, transport := range meter.Transports {
			cell := row.Sides[transport]
			require.NotNil(t, cell, row.Name)
			assert.NotEmpty(t, cell.Each, row.Name)
		}
	}
	b, err := os.ReadFile(picture)
	require.NoError(t, err)
	assert.Contains(t, string(b), "</svg>")
}

// startServer starts a server on a free port, and returns when it listens, with the port.
func startServer(t *testing.T, args ...string) (srv *program, port string) {
	t.Helper()
	srv = newProgram(t, nil, append([]string{"-s", "-p", "0"}, args...)...)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { r.Close() })
	srv.Stdout = w
	srv.start(t)
	w.Close()
	lines := bufio.NewReader(r)
	line, err := lines.ReadString('\n')
	require.NoError(t, err)
	where, ok := strings.CutPrefix(line, "Server listening on ")
	require.True(t, ok, "%q", line)
	srv.copied = make(chan struct{})
	go func() { io.Copy(&srv.stdout, lines); close(srv.copied) }()
	where, _, _ = strings.Cut(where, " ")
	if _, port, err = net.SplitHostPort(where); err != nil {
		port = "1" // a path has none
	}
	return srv, port
}

func (p *program) interrupt(t *testing.T) {
	t.Helper()
	require.NoError(t, p.Process.Signal(os.Interrupt))
	assert.Zero(t, p.wait(t), p.stderr.String())
}

func TestEachTestBetweenServerAndClient(t *testing.T) {
	for _, transport := range meter.Transports {
		t.Run(transport, func(t *testing.T) {
			host, args := "localhost", []string{}
			if transport == "unix" {
				host = filepath.Join(t.TempDir(), "s")
				args = []string{"-B", host}
			}
			srv, port := startServer(t, args...)
			for _, test := range [][]string{
				{"bw", "-n", "10M", "-P", "2"}, {"bw", "-k", "100", "-R"}, {"bw", "-t", "0.1", "--bidir", "-w", "256K"}, {"bw", "-t", "0.1", "-b", "10M/2", "-l", "1K", "-O", "0.1"},
				{"lat", "-k", "100"}, {"loaded", "-k", "100", "-b", "100K"}, {"crr", "-k", "10"}, {"sweep", "-t", "0.1"}, {"idle", "-P", "10", "-t", "0.1"},
			} {
				c := newProgram(t, nil, append(append(test, "-c", host, "-p", port, "-i", "0.05"), "--transport", transport)...)
				require.Zero(t, c.run(t), "%v: %s", test, c.stderr.String())
				assert.NotContains(t, c.stdout.String(), "Ended early")
				if test[0] != "sweep" {
					assert.Contains(t, c.stdout.String(), "CPU there:", test)
				}
			}
			srv.interrupt(t)
		})
	}
}

func TestSHMEM(t *testing.T) {
	picture := filepath.Join(t.TempDir(), "svg")
	p := newProgram(t, nil, "shmem", "-P", "3", "-t", "0.05", "-J", "--svg", picture)
	require.Zero(t, p.run(t), p.stderr.String())
	var r report.SHMEM
	require.NoError(t, json.Unmarshal(p.stdout.Bytes(), &r))
	assert.Len(t, r.Mapped, 2*len(shmemSizes)+len(atomics)+1)
	assert.Len(t, r.Requests, len(r.Mapped))
	for _, one := range append(r.Mapped, r.Requests...) {
		assert.Positive(t, one.Times.Count(), one.Item)
		assert.Positive(t, one.CPU+one.Others, one.Item)
	}
	assert.FileExists(t, picture)
	p = newProgram(t, nil, "shmem", "-t", "0.05")
	require.Zero(t, p.run(t), p.stderr.String())
	for _, says := range []string{"# put, by loads and stores\n", "1048576 ", "# atomics, 8 B, by requests\n", "cswap ", "# barrier, by requests\n"} {
		assert.Contains(t, p.stdout.String(), says)
	}
	for line := range strings.Lines(p.stdout.String()) {
		assert.LessOrEqual(t, len(line), 81, line)
	}
}

// As iperf3's, it serves one client to its end, whatever that does.
func TestAServerOfOneClient(t *testing.T) {
	for _, args := range [][]string{{"lat", "-k", "10"}, {"sweep", "-t", "0.05"}} {
		srv, port := startServer(t, "-1")
		c := newProgram(t, nil, append(args, "-c", "localhost:"+port)...)
		require.Zero(t, c.run(t), c.stderr.String())
		assert.Zero(t, srv.wait(t), srv.stderr.String())
	}
}

// A picture that does not fit on the disk is not left in part.
func TestAPictureThatCannotBeWritten(t *testing.T) {
	svg := filepath.Join(t.TempDir(), "svg")
	p := newProgram(t, nil, "lat", "-k", "10", "--transport", "tcp", "--logfile", os.DevNull, "--svg", svg)
	p.Args = append([]string{"/bin/sh", "-c", "ulimit -f 1; exec \"$0\" \"$@\"", p.Path}, p.Args[1:]...)
	p.Path = "/bin/sh"
	assert.Equal(t, 1, p.run(t), p.stderr.String())
	assertOneLine(t, p.stderr.String(), "--svg: ")
	assert.NoFileExists(t, svg)
}

// What was measured is printed, whatever ends it.
func TestWhatWasMeasuredIsPrinted(t *testing.T) {
	// measuring starts a client that measures for long, and returns when it has measured something.
	measuring := func(t *testing.T, port string) *program {
		c := newProgram(t, nil, "lat", "-c", "localhost", "-p", port, "-t", "3600", "-i", "0.01")
		r, w, err := os.Pipe()
		require.NoError(t, err)
		c.Stdout = w
		c.start(t)
		w.Close()
		lines := bufio.NewReader(r)
		something := regexp.MustCompile(` sec +[1-9]`)
		for line := ""; !something.MatchString(line); {
			line, err = lines.ReadString('\n')
			require.NoError(t, err, c.stderr.String())
		}
		done := make(chan struct{})
		go func() {
			io.Copy(&c.stdout, lines)
			r.Close()
			close(done)
		}()
		t.Cleanup(func() {
			c.Process.Kill()
			<-done
		})
		return c
	}
	printed := func(c *program) {
		t.Helper()
		eventually(t, "the output ends", func() bool { return strings.Contains(c.stdout.String(), "CPU here") })
		assert.Contains(t, c.stdout.String(), "Ended early")
		assert.Contains(t, c.stdout.String(), "p99.999 ")
	}
	t.Run("interrupt", func(t *testing.T) {
		srv, port := startServer(t)
		c := measuring(t, port)
		require.NoError(t, c.Process.Signal(os.Interrupt))
		require.Equal(t, exitInterrupted, c.wait(t))
		printed(c)
		srv.interrupt(t)
	})
	t.Run("a lost server", func(t *testing.T) {
		srv, port := startServer(t)
		c := measuring(t, port)
		require.NoError(t, srv.Process.Kill())
		require.Equal(t, 1, c.wait(t))
		assert.Contains(t, c.stderr.String(), "the server: ")
		printed(c)
	})
	t.Run("a killed client", func(t *testing.T) {
		srv, port := startServer(t)
		c := measuring(t, port)
		require.NoError(t, c.Process.Kill())
		c.wait(t)
		eventually(t, "the server says so", func() bool { return strings.Contains(srv.stdout.String(), "the client is gone") })
		srv.interrupt(t)
	})
	t.Run("an interrupted server", func(t *testing.T) {
		srv, port := startServer(t)
		c := measuring(t, port)
		require.NoError(t, srv.Process.Signal(os.Interrupt))
		srv.wait(t)
		assert.Contains(t, srv.stdout.String(), "Ended early")
		assert.NotContains(t, srv.stdout.String(), "the client is gone")
		c.wait(t)
	})
	t.Run("a full disk", func(t *testing.T) {
		if _, err := os.Stat("/dev/full"); err != nil {
			t.Skip("WARNING: no /dev/full")
		}
		for _, how := range []string{"-J", "--json-stream", "-fM"} {
			c := newProgram(t, nil, "lat", "-k", "100", "--logfile", "/dev/full", how)
			assert.Equal(t, 1, c.run(t))
			assert.Contains(t, c.stderr.String(), "no space left")
			if how != "-fM" { // there nothing is measured: the first line fails
				assert.Contains(t, c.stderr.String(), "p99.999 ")
			}
		}
	})
}

// A client of another version is refused, and the server says so.
func TestTheServerSaysWhichVersionItRefuses(t *testing.T) {
	srv, port := startServer(t, "--transport", "tcp")
	c, err := net.Dial("tcp", "localhost:"+port)
	require.NoError(t, err)
	defer c.Close()
	_, err = fmt.Fprintf(c, "sdpperf03c000000%020d\n", 1)
	require.NoError(t, err)
	answer, err := io.ReadAll(c) // to the end, which the server makes
	require.NoError(t, err)
	require.Contains(t, string(answer), "here, 3 there")
	require.NoError(t, srv.Process.Signal(os.Interrupt))
	assert.Zero(t, srv.wait(t))
	assertOneLine(t, srv.stderr.String(), "here, 3 there")
}

func TestBadInputIsOneLineAndStatus2(t *testing.T) {
	used, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer used.Close()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, nobody, _ := net.SplitHostPort(free.Addr().String())
	_, usedPort, _ := net.SplitHostPort(used.Addr().String())
	free.Close()

	for _, c := range []struct {
		args string
		says string
	}{
		{"lat -t 3600 --svg /nowhere/svg", "--svg: stat /nowhere: no such file"},
		{"frob", `unknown test "frob": use bw, lat`},
		{"--frob", "unknown flag: --frob (see sdp-perf --help)"},
		{"lat extra", `"extra": unexpected argument`},
		{"-c localhost -u", "-u of iperf3: SDP is a stream of bytes"},
		{"-c localhost --congestion bbr", "--congestion of iperf3: the system's TCP is measured as it is"},
		{"-c localhost:99999", "-c localhost:99999: use one port"},
		{"-c localhost:10 -p 11", "-c localhost:10: use one port"},
		{"-l 64", "these flags need a test"},
		{"lat -l 0", "want 1 at least"},
		{"lat -l 17M", "use 1 to 16M"},
		{"lat -l 64X", "want 1 at least, as in 64, 128K or 10M"},
		{"lat -l 99999999999999999999", "want 1 at least"},
		{"lat -t 0", "-t"},
		{"lat -t x", "want seconds, as in 10 or 0.5"},
		{"lat -t 1 -k 5", "-t, -n and -k: use one of them"},
		{"lat -P 0", "0 streams: use 1 to 1000"},
		{"lat -P 17 -l 16M", "use fewer or smaller, 256 MiB together"},
		{"shmem -c localhost", "shmem starts its own processes"},
		{"shmem -P 65", "-P 65: use 2 to 64 PEs"},
		{"lat -R", "lat goes both ways anyway"},
		{"bw -R --bidir", "-R and --bidir: use one of them"},
		{"bw -f x", "-f x: use k, m, g, t"},
		{"bw -b 10M/0", "want bursts of 1 to 1000 messages"},
		{"bw -p 70000", "use a number from 0 to 65535"},
		{"bw -J --json-stream", "use one of them"},
		{"bw --logfile /nonexistent/f", "--logfile: open /nonexistent/f"},
		{"bw --transport udp", "--transport udp: use sdp, tcp, unix"},
		{"servant", "is started by sdp-perf itself"},
		{"servant", "is started by sdp-perf itself"},
		{"-s -c localhost", "this process is one of the two"},
		{"-c localhost -1", "-B, -1 and -D are the server's"},
		{"-s lat", "the client names the test"},
		{"-s --transport unix", "say where: -B PATH"},
		{"-s --transport tcp -B 127.0.0.1 -p " + usedPort, "address already in use: stop what listens there, or choose another place by -p or -B"},
		{"-s -B /nonexistent/s", "no such file or directory"},
		{"-s -B /tmp/" + strings.Repeat("a", 110), "a Unix socket takes at most 107"},
		{"-c /tmp/" + strings.Repeat("a", 110), "a Unix socket takes at most 107"},
		{"-c 127.0.0.1 --transport tcp -p " + nobody, "connection refused (start a server there: sdp-perf -s -p " + nobody + ")"},
		{"-c localhost -p 9", fmt.Sprintf("connect: connection refused: nobody listens there in fabric %s of user %s (uid %d)", os.Getenv(spec.EnvFabric), hostdir.UserName(os.Geteuid()), os.Geteuid())},
		{"-c /nonexistent/s", "no such file or directory (start a server there: sdp-perf -s -B /nonexistent/s)"},
		{"-c no-such-host", "no route to host (to a machine without a bridge: --transport tcp)"},
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
		p := newProgram(t, nil, "-c", "127.0.0.1", "--transport", "tcp", "-p", fmt.Sprint(ln.Addr().(*net.TCPAddr).Port))
		assert.Equal(t, 1, p.run(t))
		assertOneLine(t, p.stderr.String(), "the other end is not sdp-perf")
	})
	t.Run("JSON has all keys", func(t *testing.T) {
		p := newProgram(t, nil, "-c", "localhost:9", "-J")
		assert.Equal(t, 2, p.run(t))
		var report struct {
			Start struct {
				Connected []any
				Version   string
			}
			Error string
		}
		require.NoError(t, json.Unmarshal([]byte(p.stdout.String()), &report))
		assert.NotNil(t, report.Start.Connected)
		assert.Contains(t, report.Start.Version, "sdp-perf")
		assert.Contains(t, report.Error, "connection refused")
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
		{[]string{"--help"}, []string{"sdp-perf -s", "sdp-perf -c HOST", "loaded", "--bidir", "Exit status"}},
		{[]string{"-h"}, []string{"sdp-perf -s"}},
		{[]string{"help"}, []string{"sdp-perf -s", "--version"}},
		{[]string{"--version"}, []string{"sdp-perf ", ", commit "}},
		{[]string{"version"}, []string{"sdp-perf ", ", commit "}},
	} {
		p := newProgram(t, nil, c.args...)
		require.Zero(t, p.run(t), c.args)
		assert.Empty(t, p.stderr.String())
		out := p.stdout.String()
		for _, s := range c.want {
			assert.Contains(t, out, s, c.args)
		}
		assert.NotContains(t, out, servantCommand, "it is nobody's business")
	}
}
