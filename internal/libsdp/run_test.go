//go:build linux

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// runner runs programs by sdp-run, in a fabric of the test's own.
type runner struct {
	t    *testing.T
	path string
	log  string // file
	env  []string
	more []string // flags
	dir  string
	user *syscall.Credential
}

func newRunner(t *testing.T) *runner {
	t.Helper()
	r := &runner{t: t, path: filepath.Join(installed(t), "bin/sdp-run"), log: filepath.Join(t.TempDir(), "log")}
	r.env = append(os.Environ(), "SDP_FABRIC=shm:"+fabrictest.Name(t))
	return r
}

func (r *runner) command(name string, args ...string) *exec.Cmd {
	args = append(append([]string{"--log", "connections", "--log-file", r.log}, append(r.more, name)...), args...)
	cmd := exec.Command(r.path, args...) // the test's context would kill servers before they have ended their workers
	cmd.Env, cmd.WaitDelay, cmd.Dir = r.env, time.Second, r.dir
	if r.user != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: r.user}
	}
	return cmd
}

// run runs a program to its end, which must be a good one, and returns its output.
func (r *runner) run(name string, args ...string) string {
	r.t.Helper()
	cmd := r.command(tool(r.t, name), args...)
	stop := time.AfterFunc(guard, func() { _ = cmd.Process.Kill() })
	defer stop.Stop()
	out, err := cmd.CombinedOutput()
	require.NoError(r.t, err, "%q: %s\n%s", cmd.Args, out, r.said())
	return string(out)
}

// serve starts a server that listens at an address until the test ends.
func (r *runner) serve(at, name string, args ...string) *exec.Cmd {
	r.t.Helper()
	cmd := r.command(tool(r.t, name), args...)
	out, err := os.CreateTemp(r.t.TempDir(), "out")
	require.NoError(r.t, err)
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	require.NoError(r.t, cmd.Start())
	r.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		stop := time.AfterFunc(guard, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		stop.Stop()
	})
	for deadline := time.Now().Add(guard); !listens(at); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(out.Name())
			require.FailNow(r.t, "it does not listen", "%s: %s", name, text)
		}
	}
	return cmd
}

// listens reports whether a program listens at an address. It makes no connection, which would be a client for the program.
func listens(at string) bool {
	_, port, _ := net.SplitHostPort(at)
	n, _ := strconv.Atoi(port)
	for _, path := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, _ := os.ReadFile(path)
		if regexp.MustCompile(fmt.Sprintf(`(?m)^ *\d+: [0-9A-F]+:%04X [0-9A-F]+:0000 0A `, n)).Match(text) {
			return true
		}
	}
	return false
}

// said returns what the library has logged.
func (r *runner) said() string {
	text, _ := os.ReadFile(r.log)
	return string(text)
}

// bySDP checks that connections have gone by SDP at both ends, n of them or more.
func (r *runner) bySDP(n int) {
	r.t.Helper()
	assert.GreaterOrEqual(r.t, strings.Count(r.said(), ": goes by SDP\n"), 2*n, r.said())
	assert.NotContains(r.t, r.said(), "none of sdp-run's")
}

// freePort returns an address of this machine that nobody uses.
func freePort(t *testing.T) (at, port string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	_, port, _ = net.SplitHostPort(ln.Addr().String())
	return ln.Addr().String(), port
}

func TestEachCallReturnsWhatTCPsDoes(t *testing.T) {
	calls := compile(t, "gcc", "testdata/calls.c")
	r := newRunner(t)
	byTCP := run(t, nil, calls)
	for _, least := range []string{"1", "4", "6", "16384"} { // from all that can be by SDP to large writes
		r.more = []string{"--smallest", least}
		assert.Equal(t, byTCP, r.run(calls), least)
	}
	r.bySDP(16)
}

// stream is bytes that a program with a mistake would not send by chance.
func stream(n int) []byte {
	b := make([]byte, n)
	x := uint32(1)
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}

const talker = `
import socket, sys, threading
n, x, out = int(sys.argv[3]), 1, bytearray()
for i in range(n):
    x = (x * 1664525 + 1013904223) & 0xffffffff
    out.append(x >> 24)
def talk(c):
    for i in range(5): # the ends meet
        if sys.argv[1] == "connect": c.sendall(b"x")
        if not c.recv(1): return
        if sys.argv[1] != "connect": c.sendall(b"x")
    def write():
        at, step = 0, 1
        while at < n:
            c.sendall(out[at:at+step]); at += step; step = step * 3 % 70001
        c.shutdown(socket.SHUT_WR)
    w = threading.Thread(target=write); w.start()
    got, step = bytearray(), 1
    while True:
        b = c.recv(step)
        if not b: break
        got += b; step = step * 5 % 65537
    w.join(); c.close()
    print("same" if got == out else "%d bytes, not the same" % len(got), flush=True)
if sys.argv[1] == "connect":
    talk(socket.create_connection(("127.0.0.1", int(sys.argv[2]))))
else:
    s = socket.socket(); s.bind(("127.0.0.1", int(sys.argv[2]))); s.listen()
    while True: talk(s.accept()[0])
`

const spoken = 2_000_000 // bytes, each way

// converse exchanges what talker does, and returns what has come. It has no library.
func converse(t *testing.T, c net.Conn, first bool) []byte {
	t.Helper()
	defer c.Close()
	for range 5 {
		b := []byte{'x'}
		if first {
			_, err := c.Write(b)
			assert.NoError(t, err)
		}
		_, err := io.ReadFull(c, b)
		assert.NoError(t, err)
		assert.Equal(t, "x", string(b))
		if !first {
			_, err = c.Write(b)
			assert.NoError(t, err)
		}
	}
	var sent sync.WaitGroup
	sent.Go(func() {
		_, err := c.Write(stream(spoken))
		assert.NoError(t, err)
		assert.NoError(t, c.(*net.TCPConn).CloseWrite())
	})
	got, err := io.ReadAll(c)
	assert.NoError(t, err)
	sent.Wait()
	return got
}

func TestAPeerWithoutTheLibraryGetsJustTheProgramsBytes(t *testing.T) {
	r := newRunner(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	got := make(chan []byte, 1)
	go func() {
		if c, err := ln.Accept(); assert.NoError(t, err) {
			got <- converse(t, c, false)
		}
	}()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	assert.Equal(t, "same\n", r.run("python3", "-c", talker, "connect", port, fmt.Sprint(spoken)))
	assert.True(t, bytes.Equal(stream(spoken), <-got), "what a server gets")

	at, port := freePort(t)
	r.serve(at, "python3", "-c", talker, "accept", port, fmt.Sprint(spoken))
	c, err := net.Dial("tcp", at)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(stream(spoken), converse(t, c, true)), "what a client gets")
	assert.NotContains(t, r.said(), "goes by SDP")
	assert.Contains(t, r.said(), "stays TCP: the other end has no library")
}

func TestStreamsOfBothEndsArrive(t *testing.T) {
	r := newRunner(t)
	for _, least := range []string{"0", "300", "16384"} {
		r.more = []string{"--smallest", least}
		at, port := freePort(t)
		r.serve(at, "python3", "-c", talker, "accept", port, fmt.Sprint(spoken))
		for range 3 {
			assert.Equal(t, "same\n", r.run("python3", "-c", talker, "connect", port, fmt.Sprint(spoken)))
		}
	}
	r.bySDP(3) // of larger ones, an end may have sent all before the other one is met
}

func TestWhatIsSmallStaysTCP(t *testing.T) {
	r := newRunner(t)
	at, port := freePort(t)
	r.serve(at, "python3", "-c", talker, "accept", port, "10000")
	assert.Equal(t, "same\n", r.run("python3", "-c", talker, "connect", port, "10000"))
	assert.Empty(t, r.said(), "the ends have not met")
}

func TestRulesKeepConnectionsOnTCP(t *testing.T) {
	r := newRunner(t)
	r.more = []string{"--smallest", "1"}
	at, port := freePort(t)
	r.serve(at, "python3", "-c", talker, "accept", port, "1000")
	for rule, want := range map[string]bool{
		"tcp both * * *":                         false,
		"tcp connect python* 127.0.0.0/8 *":      false,
		"tcp connect * * " + port:                false,
		"tcp accept * * *":                       true, // the server has no rules
		"tcp both redis-* * *":                   true,
		"tcp both * 10.0.0.0/8 *":                true,
		"tcp both * 128.0.0.0/1 *":               true,
		"tcp both * * 1-2":                       true,
		"sdp both * 127.0.0.1 *\ntcp both * * *": true,
	} {
		require.NoError(t, os.RemoveAll(r.log))
		file := filepath.Join(t.TempDir(), "rules")
		require.NoError(t, os.WriteFile(file, []byte("# rules\n\n"+rule+"\n"), 0o600))
		cmd := r.command("--rules", file, tool(t, "python3"), "-c", talker, "connect", port, "1000")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		assert.Equal(t, "same\n", string(out))
		assert.Equal(t, want, strings.Contains(r.said(), "goes by SDP"), "%s\n%s", rule, r.said())
	}
}

func TestWithoutAFabricConnectionsStayTCP(t *testing.T) {
	r := newRunner(t)
	r.more = []string{"--smallest", "1"}
	r.env = append(r.env, "SDP_FABRIC=shm:/nowhere")
	at, port := freePort(t)
	r.serve(at, "python3", "-c", talker, "accept", port, "300000")
	assert.Equal(t, "same\n", r.run("python3", "-c", talker, "connect", port, "300000"))
	assert.NotContains(t, r.said(), "goes by SDP")
	assert.Contains(t, r.said(), "connections stay TCP")
}

func TestEndsOfTwoFabricsStayTCP(t *testing.T) {
	r := newRunner(t)
	r.more = []string{"--smallest", "1"}
	at, port := freePort(t)
	r.serve(at, "python3", "-c", talker, "accept", port, "300000")
	r.env = append(r.env, "SDP_FABRIC=shm:"+fabrictest.Name(t)+"x")
	assert.Equal(t, "same\n", r.run("python3", "-c", talker, "connect", port, "300000"))
	assert.NotContains(t, r.said(), "goes by SDP")
	assert.Contains(t, r.said(), "the other end has another fabric")
}

func TestAKilledEndIsNoticed(t *testing.T) {
	const partner = `
import socket, sys
c = socket.create_connection(("127.0.0.1", int(sys.argv[1]))) if len(sys.argv) > 2 else None
if c is None:
    s = socket.socket(); s.bind(("127.0.0.1", int(sys.argv[1]))); s.listen()
    while c is None:
        c = s.accept()[0]
        if not c.recv(1): c = None
else: c.sendall(b"x")
try:
    for i in range(10): # in turn
        if len(sys.argv) > 2: c.recv(1)
        c.sendall(b"x")
        if len(sys.argv) <= 2: c.recv(1)
    print("reads", flush=True)
    while c.recv(100): pass
    print("end", flush=True)
except OSError as e: print(e.strerror, flush=True)
`
	r := newRunner(t)
	r.more = []string{"--smallest", "1"}
	for _, victim := range []string{"server", "client"} {
		at, port := freePort(t)
		server := r.serve(at, "python3", "-c", partner, port)
		client := r.command(tool(t, "python3"), "-c", partner, port, "connect")
		pipe, err := client.StdoutPipe()
		require.NoError(t, err)
		out := bufio.NewReader(pipe)
		require.NoError(t, client.Start())
		stop := time.AfterFunc(guard, func() { _ = client.Process.Kill() })
		first, _ := out.ReadString('\n') // writing, it could get EPIPE, as by TCP
		require.Equal(t, "reads\n", first)
		require.Eventually(t, func() bool { return strings.Count(r.said(), "goes by SDP") >= 2 }, guard, 10*time.Millisecond, r.said())
		if victim == "server" {
			require.NoError(t, server.Process.Kill())
			rest, err := io.ReadAll(out)
			require.NoError(t, err)
			_ = client.Wait()
			assert.Regexp(t, "^(end|Connection reset by peer)\n$", string(rest))
		} else {
			require.NoError(t, client.Process.Kill())
			_ = client.Wait()
			require.NoError(t, server.Wait())
		}
		stop.Stop()
		require.NoError(t, os.RemoveAll(r.log))
	}
}

func TestIperf3(t *testing.T) {
	r := newRunner(t)
	tool(t, "iperf3")
	for _, ends := range []string{"both", "server", "client"} {
		for _, more := range [][]string{{}, {"-R"}, {"-P", "3"}, {"--bidir"}} {
			at, port := freePort(t)
			args := []string{"-s", "-1", "-p", port} // it is busy for a time after each client
			if ends == "client" {
				_, _ = start(t, nil, tool(t, "iperf3"), append(args, "--forceflush")...)
			} else {
				r.serve(at, "iperf3", args...)
			}
			args = append([]string{"-c", "127.0.0.1", "-p", port, "-n", "20M"}, more...)
			if ends == "server" {
				assert.Contains(t, run(t, nil, tool(t, "iperf3"), args...), "iperf Done")
			} else {
				assert.Contains(t, r.run("iperf3", args...), "iperf Done")
			}
		}
		if ends == "both" {
			r.bySDP(4)
		}
	}
}

func TestRedisWhileItSaves(t *testing.T) {
	r := newRunner(t)
	r.more = []string{"--smallest", "1"}
	at, port := freePort(t)
	r.serve(at, "redis-server", "--port", port, "--bind", "127.0.0.1", "--dir", t.TempDir(), "--save", "")
	var load sync.WaitGroup
	load.Go(func() {
		out := r.run("redis-benchmark", "-p", port, "-c", "20", "-n", "20000", "-r", "1000", "-t", "set,get", "-d", "2000", "-q")
		assert.Contains(t, out, "GET: ")
	})
	for range 3 {
		assert.Contains(t, r.run("redis-cli", "-p", port, "bgsave"), "ackground sav")
		r.run("redis-cli", "-p", port, "set", "key", strings.Repeat("x", 100000))
		assert.Len(t, strings.TrimSpace(r.run("redis-cli", "-p", port, "get", "key")), 100000)
		for strings.Contains(r.run("redis-cli", "-p", port, "info", "persistence"), "rdb_bgsave_in_progress:1") {
			time.Sleep(10 * time.Millisecond)
		}
	}
	load.Wait()
	assert.Contains(t, r.run("redis-cli", "-p", port, "info", "persistence"), "rdb_last_bgsave_status:ok")
	assert.Contains(t, run(t, nil, tool(t, "redis-benchmark"), "-p", port, "-n", "2000", "-t", "set", "-q"), "SET: ") // one end
	r.bySDP(1)
}

const nginxConfig = `daemon off; worker_processes 2; pid %[1]s/pid; error_log %[1]s/log; %[3]s
events { worker_connections 256; }
http { access_log off; sendfile on; tcp_nopush on; keepalive_requests 100;
client_body_temp_path %[1]s/a; proxy_temp_path %[1]s/b; fastcgi_temp_path %[1]s/c; uwsgi_temp_path %[1]s/d; scgi_temp_path %[1]s/e;
server { listen %[2]s; root %[1]s; } }
`

func TestNginxAndCurl(t *testing.T) {
	r := newRunner(t)
	dir := t.TempDir()
	at, _ := freePort(t)
	user := ""
	if os.Getuid() == 0 {
		user = "user root;"
	}
	config, big := filepath.Join(dir, "conf"), stream(5_000_000)
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, nginxConfig, dir, at, user), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "big"), big, 0o600))
	r.serve(at, "nginx", "-c", config)
	got := filepath.Join(dir, "got")
	for range 3 {
		r.run("curl", "-sSf", "-o", got, "http://"+at+"/big", "-o", got+"2", "http://"+at+"/big")
		for _, name := range []string{got, got + "2"} {
			b, err := os.ReadFile(name)
			require.NoError(t, err)
			assert.True(t, bytes.Equal(big, b), "what curl gets")
		}
	}
	r.bySDP(3)
	answer, err := http.Get("http://" + at + "/big")
	require.NoError(t, err)
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(big, b), "what a client without the library gets")
	out := r.run("wrk", "-t1", "-c8", "-d1", "http://"+at+"/conf")
	assert.NotContains(t, out, "Socket errors")
}

func TestMemcached(t *testing.T) {
	r := newRunner(t)
	at, port := freePort(t)
	r.serve(at, "memcached", "-u", "root", "-l", "127.0.0.1", "-p", port)
	const client = `
import socket, sys
c = socket.create_connection(("127.0.0.1", int(sys.argv[1]))); f = c.makefile("rwb")
for n in (1, 100, 30000, 900000):
    v = bytes(i * n & 255 for i in range(n))
    f.write(b"set k 0 0 %d\r\n" % n + v + b"\r\n"); f.flush(); assert f.readline() == b"STORED\r\n"
    f.write(b"get k\r\n"); f.flush(); assert f.readline() == b"VALUE k 0 %d\r\n" % n
    assert f.read(n + 7) == v + b"\r\nEND\r\n"
`
	r.run("python3", "-c", client, port)
	r.bySDP(1)
	run(t, nil, tool(t, "python3"), "-c", client, port)
}

func TestPythonsHTTPServer(t *testing.T) {
	r := newRunner(t)
	dir := t.TempDir()
	big := stream(3_000_000)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "big"), big, 0o600))
	at, port := freePort(t)
	r.serve(at, "python3", "-m", "http.server", "-d", dir, "-b", "127.0.0.1", port)
	got := filepath.Join(dir, "got")
	for range 3 {
		r.run("curl", "-sSf", "-o", got, "http://"+at+"/big")
		b, err := os.ReadFile(got)
		require.NoError(t, err)
		assert.True(t, bytes.Equal(big, b), "what curl gets")
	}
	assert.Contains(t, r.said(), ": goes by SDP\n")
}

func TestBadInputOfSdpRunIsOneLine(t *testing.T) {
	r := newRunner(t)
	file := filepath.Join(t.TempDir(), "rules")
	for rule, want := range map[string]string{
		"tcp both *":          file + ":1: want WAY END PROGRAM ADDRESS PORTS, as in: tcp both * * 22",
		"udp both * * *":      file + `:1: way "udp": want sdp or tcp`,
		"tcp all * * *":       file + `:1: end "all": want connect, accept or both`,
		"tcp both [ * *":      file + `:1: program "[": want the name of a program, or a pattern as in redis-*`,
		"tcp both * here *":   file + `:1: address "here": want *, an IP address, or one with its bits, as in 127.0.0.0/8`,
		"tcp both * * 9-8":    file + `:1: ports "9-8": want *, a port, or two as in 8000-8999`,
		"tcp both * * 100000": file + `:1: ports "100000": want *, a port, or two as in 8000-8999`,
	} {
		require.NoError(t, os.WriteFile(file, []byte(rule), 0o600))
		refused(t, r, 2, want, "--rules", file, "true")
	}
	refused(t, r, 2, "nothing to run: give a program, as in sdp-run redis-server")
	refused(t, r, 2, `--log "loud": want nothing, problems or connections`, "--log", "loud", "true")
	refused(t, r, 2, "--rules: open /no/file: no such file or directory", "--rules", "/no/file", "true")
	refused(t, r, 2, "--rules: /dev/zero: has more than 1048576 bytes", "--rules", "/dev/zero", "true")
	refused(t, r, 2, "libsdp-run.so is not in /no: install it with cmd/libsdp/install DIR, or name its directory by --library", "--library", "/no", "true")
	refused(t, r, 2, "--log-file: open /no/file: no such file or directory", "--log-file", "/no/file", "true")
	refused(t, r, 2, `--smallest "x": want bytes, as in 65536, 64K or 1M`, "--smallest", "x", "true")
	refused(t, r, 2, "--smallest 4G: want less than 4G", "--smallest", "4G", "true")
	r.env = append(r.env, "SDP_FABRIC=foo")
	refused(t, r, 2, `SDP_FABRIC: fabric "foo": want shm:NAME, mem:NAME, ntb, or ring:NAME?node=I&nodes=N, or line: or mesh: in place of ring: invalid argument`, "true")
	r.env = append(r.env, "SDP_FABRIC=mem:x")
	refused(t, r, 2, "SDP_FABRIC: mem:x is memory of one process, where programs do not meet", "true")
	r.env = append(r.env, "SDP_FABRIC=ntb") // the program runs without a bridge too
	assert.Empty(t, r.run("true"))
	r.env = append(r.env, "SDP_FABRIC=")
	refused(t, r, 127, `exec: "no-such-program": executable file not found in $PATH`, "no-such-program")
}

// refused checks that sdp-run ends with a status and one line.
func refused(t *testing.T, r *runner, status int, want string, args ...string) {
	t.Helper()
	cmd := exec.Command(r.path, args...)
	cmd.Env = r.env
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	assert.Equal(t, status, exit.ExitCode())
	if status == 2 {
		want += " (sdp-run --help tells more)"
	}
	assert.Equal(t, "sdp-run: "+want+"\n", string(out))
}

func TestSdpRunSaysWhatItCannotLoadInto(t *testing.T) {
	r := newRunner(t)
	source := filepath.Join(t.TempDir(), "p.c")
	require.NoError(t, os.WriteFile(source, []byte("int main(void) { return 0; }\n"), 0o600))
	static, script := filepath.Join(t.TempDir(), "static"), filepath.Join(t.TempDir(), "script")
	run(t, nil, tool(t, "gcc"), "-static", "-o", static, source)
	require.NoError(t, os.WriteFile(script, []byte("#!"+static+"\n"), 0o700))
	const is = "%s is static: the library is not loaded, and its connections stay TCP"
	for _, path := range []string{static, script} {
		out, err := exec.Command(r.path, path).CombinedOutput()
		require.NoError(t, err)
		assert.Equal(t, "sdp-run: "+fmt.Sprintf(is, path)+"\n", string(out))
	}
	other := filepath.Join(t.TempDir(), "other")
	require.NoError(t, os.Link(static, other))
	if os.Getuid() == 0 {
		require.NoError(t, os.Chown(other, 1, -1))
		require.NoError(t, os.Chmod(other, os.ModeSetuid|0o755))
		out, _ := exec.Command(r.path, other).CombinedOutput()
		assert.Contains(t, string(out), "other is set-user-ID: ")
	}
}
