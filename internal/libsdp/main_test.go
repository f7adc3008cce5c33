//go:build linux

package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	status := m.Run()
	if dir, err := built(); dir != "" && err == nil {
		os.RemoveAll(dir)
	}
	os.Exit(status)
}

// built installs the library once.
var built = sync.OnceValues(func() (string, error) {
	if _, err := exec.LookPath("gcc"); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "libsdp")
	if err == nil {
		_, err = install(dir)
	}
	return dir, err
})

// installed returns where the library is installed. Without gcc the test is skipped, but not in CI.
func installed(t *testing.T) string {
	t.Helper()
	dir, err := built()
	if err != nil && dir == "" && os.Getenv("CI") != "true" {
		t.Skipf("%v: the library for C needs gcc", err)
	}
	require.NoError(t, err)
	return dir
}

// tool returns the path of a program. Without it the test is skipped, but not in CI.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	require.NoError(t, err)
	return path
}

// guard limits what hangs.
const guard = 2 * time.Minute

// run runs a command to its end, which must be a good one, and returns its output.
func run(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), guard)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%q: %s", cmd.Args, out)
	return string(out)
}

// compile builds a program with the flags that pkg-config has, and returns its path.
func compile(t *testing.T, compiler, source string, flags ...string) string {
	t.Helper()
	dir := installed(t)
	config := exec.Command(tool(t, "pkg-config"), "--cflags", "--libs", "libsdp")
	config.Env = append(os.Environ(), "PKG_CONFIG_PATH="+filepath.Join(dir, "lib/pkgconfig"))
	out, err := config.Output()
	require.NoError(t, err)
	exe := filepath.Join(t.TempDir(), strings.TrimSuffix(filepath.Base(source), ".c"))
	args := append([]string{"-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", exe, source}, flags...)
	run(t, nil, tool(t, compiler), append(args, strings.Fields(string(out))...)...)
	return exe
}

// start starts a program that runs until the test ends, and returns the first line that it prints.
func start(t *testing.T, env []string, name string, args ...string) (*exec.Cmd, string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env, cmd.Stderr = append(os.Environ(), env...), os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	return cmd, strings.TrimSpace(line)
}

// fabric opens the test's own fabric, and returns the variable by which programs join it.
func fabric(t *testing.T) (*sdp.Fabric, []string) {
	t.Helper()
	spec := "shm:" + fabrictest.Name(t)
	f, err := sdp.Open(spec)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f, []string{"SDP_FABRIC=" + spec}
}

// echo serves on a listener until the test ends, and returns its address.
func echo(t *testing.T, ln net.Listener, err error) string {
	t.Helper()
	require.NoError(t, err)
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, err := io.Copy(c, c)
				assert.NoError(t, err)
				assert.NoError(t, c.(interface{ CloseWrite() error }).CloseWrite())
			}()
		}
	}()
	return ln.Addr().String()
}

const some = "3000000" // bytes

func TestCBesideGo(t *testing.T) {
	talk := compile(t, "gcc", "testdata/talk.c")
	for network, at := range map[string]string{"sdp": "localhost:0", "tcp": "127.0.0.1:0"} {
		f, env := fabric(t)
		ln, err := f.Listen(network, at)
		inGo := echo(t, ln, err)
		_, inC := start(t, env, talk, "serve", network, at)
		assert.Equal(t, "by SDP\n", run(t, env, talk, "send", network, inGo, some), "C to Go, %s", network)
		assert.Equal(t, "by SDP\n", run(t, env, talk, "send", network, inC, some), "C to C, %s", network)
		c, err := f.Dial(network, inC)
		require.NoError(t, err)
		assert.IsType(t, (*sdp.Conn)(nil), c)
		exchange(t, c)
	}
}

// exchange sends a megabyte to what sends all back, and checks what comes.
func exchange(t *testing.T, c net.Conn) {
	t.Helper()
	defer c.Close()
	sent := []byte(strings.Repeat("0123456789abcde\n", 1<<16))
	go func() {
		_, err := c.Write(sent)
		assert.NoError(t, err)
		assert.NoError(t, c.(interface{ CloseWrite() error }).CloseWrite())
	}()
	got, err := io.ReadAll(c)
	require.NoError(t, err)
	assert.True(t, string(sent) == string(got), "what comes back is what was sent")
}

func TestOneSideHasTCPAlone(t *testing.T) {
	talk := compile(t, "gcc", "testdata/talk.c")
	_, env := fabric(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	assert.Equal(t, "by TCP\n", run(t, env, talk, "send", "tcp", echo(t, ln, err), some))
	_, at := start(t, env, talk, "serve", "tcp", "127.0.0.1:0")
	c, err := net.Dial("tcp", at)
	require.NoError(t, err)
	exchange(t, c)
}

// misbehave serves what errors.c asks for.
func misbehave(t *testing.T, ln net.Listener, err error) string {
	t.Helper()
	require.NoError(t, err)
	done := make(chan struct{})
	t.Cleanup(func() { close(done); ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				b := make([]byte, 1)
				_, _ = io.ReadFull(c, b) // a dial without time sends none
				switch b[0] {
				case 'r':
					_ = c.(interface{ SetLinger(int) error }).SetLinger(0)
				case 'u':
					_, _ = io.ReadFull(c, b) // so that there is more
				case 'n':
					<-done
				}
			}()
		}
	}()
	return ln.Addr().String()
}

// Calls fail over SDP as they do over TCP, which has the errors of the system.
func TestErrorsAreThoseOfTCP(t *testing.T) {
	errors := compile(t, "gcc", "testdata/errors.c")
	f, env := fabric(t)
	ways := map[string]func(at string) (net.Listener, error){
		"sdp":  func(string) (net.Listener, error) { return f.Listen("sdp", "localhost:0") },
		"tcp":  func(string) (net.Listener, error) { return f.Listen("tcp", "localhost:0") },
		"tcp4": func(string) (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") }, // of no library
	}
	got := map[string]string{}
	for network, listen := range ways {
		ln, err := listen("") // first, as it must not get the port of the other one
		at := misbehave(t, ln, err)
		closed, err := listen("")
		require.NoError(t, err)
		refused := closed.Addr().String()
		closed.Close()
		got[network] = run(t, env, errors, network, at, refused)
	}
	assert.Equal(t, got["tcp4"], got["sdp"])
	assert.Equal(t, got["tcp4"], got["tcp"])
	table, err := os.ReadFile("testdata/errors.txt")
	require.NoError(t, err)
	assert.Equal(t, string(table), got["tcp4"])
}

func TestThreads(t *testing.T) {
	_, env := fabric(t)
	for _, network := range []string{"sdp", "tcp"} {
		assert.Equal(t, "passed\n", run(t, env, compile(t, "gcc", "testdata/threads.c"), network))
	}
}

func TestForkExecAndSignals(t *testing.T) {
	f, env := fabric(t)
	ln, err := f.Listen("sdp", "localhost:0")
	assert.Equal(t, "passed\n", run(t, env, compile(t, "gcc", "testdata/process.c"), echo(t, ln, err)))
}

func TestLeasesAndEvents(t *testing.T) {
	f, env := fabric(t)
	ln, err := f.Listen("sdp", "localhost:0")
	assert.Equal(t, "passed\n", run(t, env, compile(t, "gcc", "testdata/lend.c"), echo(t, ln, err)))
}

func TestSanitizers(t *testing.T) {
	f, env := fabric(t)
	ln, err := f.Listen("sdp", "localhost:0")
	at := echo(t, ln, err)
	for _, compiler := range []string{"gcc", "clang"} {
		for program, arg := range map[string]string{"threads": "sdp", "lend": at, "process": at} {
			exe := compile(t, compiler, "testdata/"+program+".c", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
			// The check for leaks in a forked child says that it finds none of the parent's threads.
			assert.True(t, strings.HasSuffix(run(t, env, exe, arg), "passed\n"), "%s of %s", program, compiler)
		}
	}
}

// Go's runtime tells valgrind of its memory where it is built with the tag valgrind. A goroutine that is stopped
// anywhere looks to it as if it stored behind the end of a stack. It says that each processor has rdtscp, and then does
// not know that instruction if this one has not.
func TestValgrind(t *testing.T) {
	valgrind := tool(t, "valgrind")
	exe := compile(t, "gcc", "testdata/threads.c")
	dir := t.TempDir()
	checked := library
	checked.Tags = "valgrind"
	require.NoError(t, checked.Install(dir))
	_, env := fabric(t)
	env = append(env, "GODEBUG=asyncpreemptoff=1,cpu.rdtscp=off", "LD_LIBRARY_PATH="+filepath.Join(dir, "lib"))
	// The search path of the program comes behind that of the variable.
	out := run(t, env, valgrind, "--error-exitcode=9", "--leak-check=no", exe, "sdp")
	assert.Contains(t, out, "passed\n")
	assert.Contains(t, out, "ERROR SUMMARY: 0 errors")
}

func TestTheHeader(t *testing.T) {
	source := filepath.Join(t.TempDir(), "header.c")
	require.NoError(t, os.WriteFile(source, []byte("#include <sdp.h>\nint main(void) { return sdp_close(-1) + 1; }\n"), 0o644))
	for _, flags := range [][]string{{"gcc", "-std=c99", "-pedantic"}, {"clang", "-std=c17"}, {"g++", "-x", "c++", "-std=c++11"}} {
		run(t, nil, compile(t, flags[0], source, flags[1:]...))
	}
}

func TestOnlyTheInterfaceIsVisible(t *testing.T) {
	header, err := os.ReadFile("../../cmd/libsdp/include/sdp.h")
	require.NoError(t, err)
	var want []string
	for _, m := range regexp.MustCompile(`(?m)^[a-z].*?\b(sdp_\w+)\(`).FindAllSubmatch(header, -1) {
		want = append(want, string(m[1]))
	}
	require.Greater(t, len(want), 20)
	page, err := os.ReadFile("sdp.3")
	require.NoError(t, err)
	for _, name := range want {
		assert.Contains(t, string(page), name)
	}
	so := filepath.Join(installed(t), "lib", "libsdp.so")
	var got []string
	for line := range strings.Lines(run(t, nil, tool(t, "nm"), "-D", "--defined-only", so)) {
		got = append(got, strings.Fields(line)[2])
	}
	assert.ElementsMatch(t, want, got)
}

func TestTheManualPage(t *testing.T) {
	assert.Empty(t, run(t, nil, tool(t, "mandoc"), "-T", "lint", "-W", "warning", filepath.Join(installed(t), "share/man/man3/sdp.3")))
}

func TestExamplesInC(t *testing.T) {
	_, env := fabric(t)
	client := compile(t, "gcc", "../../examples/c/echo.c")
	for _, name := range []string{"echo", "epoll"} {
		server := compile(t, "gcc", "../../examples/c/"+name+".c")
		for _, network := range []string{"sdp", "tcp"} {
			_, at := start(t, env, server, network, "localhost:0")
			assert.Equal(t, "hello, by SDP\n", run(t, env, client, network, at, "hello"))
			talk := compile(t, "gcc", "testdata/talk.c")
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() { assert.Equal(t, "by SDP\n", run(t, env, talk, "send", network, at, some)) })
			}
			all.Wait()
			if network == "tcp" {
				c, err := net.Dial("tcp", at)
				require.NoError(t, err)
				exchange(t, c)
			}
		}
	}
}

func TestPythonsHTTPClient(t *testing.T) {
	python := tool(t, "python3")
	f, env := fabric(t)
	env = append(env, "LIBSDP="+filepath.Join(installed(t), "lib", "libsdp.so"))
	page := strings.Repeat("a page ", 100000)
	for network, want := range map[string]string{"sdp": "by SDP", "tcp": "by TCP"} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if network == "sdp" {
			ln, err = f.Listen("sdp", "localhost:0")
		}
		require.NoError(t, err)
		web := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, page) })}
		t.Cleanup(func() { web.Close() })
		go web.Serve(ln)
		got := run(t, env, python, "../../examples/python/sdpsocket.py", network, ln.Addr().String(), "/")
		assert.Equal(t, "200 "+page+" "+want+"\n", got)
	}
}

// exit is sdp_close: the peer reads the end of the stream, not a reset. A child that has exited has closed nothing.
func TestExitCloses(t *testing.T) {
	f, env := fabric(t)
	ln, err := f.Listen("sdp", "localhost:0")
	require.NoError(t, err)
	defer ln.Close()
	exe := compile(t, "gcc", "testdata/exits.c")
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(t, env, exe, ln.Addr().String())
	}()
	c, err := ln.Accept()
	require.NoError(t, err)
	defer c.Close()
	got, err := io.ReadAll(c)
	require.NoError(t, err)
	assert.Equal(t, "before fork, and behind", string(got))
	<-done
}

// What keeps a program from joining its fabric is an error with a text.
func TestFabricsThatCannotBeJoined(t *testing.T) {
	client := compile(t, "gcc", "../../examples/c/echo.c")
	for spec, want := range map[string]string{
		"nonsense":             "nonsense",
		"shm:/no/such/place":   "no such file or directory",
		"shm:x?window=1":       "window",
		"line:x?node=3&nodes=": "nodes",
	} {
		cmd := exec.CommandContext(t.Context(), client, "sdp", "localhost:1", "x")
		cmd.Env = append(os.Environ(), "SDP_FABRIC="+spec)
		out, err := cmd.CombinedOutput()
		require.Error(t, err)
		assert.Equal(t, 1, cmd.ProcessState.ExitCode())
		assert.Contains(t, string(out), want)
	}
}

func TestAFullWindow(t *testing.T) {
	spec := "shm:" + fabrictest.Name(t) + "?window=1048576"
	f, err := sdp.Open(spec)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	ln, err := f.Listen("sdp", "localhost:0")
	assert.Equal(t, "ENOBUFS\n", run(t, []string{"SDP_FABRIC=" + spec}, compile(t, "gcc", "testdata/full.c"), echo(t, ln, err)))
}

// A side that is killed resets its connections, in either language.
func TestAKilledSideIsNoticed(t *testing.T) {
	talk := compile(t, "gcc", "testdata/talk.c")
	f, env := fabric(t)
	server, at := start(t, env, talk, "serve", "sdp", "localhost:0")
	c, err := f.Dial("sdp", at)
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Write([]byte("x"))
	require.NoError(t, err)
	_, err = io.ReadFull(c, make([]byte, 1))
	require.NoError(t, err)
	reading := exec.CommandContext(t.Context(), compile(t, "gcc", "testdata/ended.c"), at)
	reading.Env = append(os.Environ(), env...)
	out, err := reading.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, reading.Start())
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan())
	require.Equal(t, "reading", lines.Text())
	require.NoError(t, server.Process.Kill())
	require.True(t, lines.Scan())
	assert.Equal(t, "ECONNRESET", lines.Text())
	require.NoError(t, reading.Wait())
	_, err = c.Read(make([]byte, 1))
	assert.ErrorIs(t, err, syscall.ECONNRESET)
}
