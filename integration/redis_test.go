//go:build linux

package integration

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// startRedis starts a server without persistence on a Unix socket.
func startRedis(t *testing.T) (target string) {
	t.Helper()
	server := tool(t, "redis-server")
	dir := shortDir(t)
	socket := filepath.Join(dir, "redis.sock")
	start(t, server, []string{
		"--port", "0", "--unixsocket", socket, "--dir", dir, "--save", "", "--appendonly", "no", "--daemonize", "no",
	}).waitFor(regexp.MustCompile(`(?i)ready to accept connections`), 1)
	return "unix://" + socket
}

// command runs a client and returns what it wrote. The client must end in order and
// write nothing to stderr.
func command(t *testing.T, path string, args ...string) string {
	t.Helper()
	var errs strings.Builder
	cmd := exec.Command(path, args...)
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil || errs.Len() > 0 {
		t.Fatalf("%s %q: %v\n%s%s", path, args, err, out, errs.String())
	}
	return string(out)
}

func TestRedisCommands(t *testing.T) {
	cli := tool(t, "redis-cli")
	p := startPair(t, startRedis(t))
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"PING"}, "PONG"},
		{[]string{"SET", "key", "a value"}, "OK"},
		{[]string{"GET", "key"}, "a value"},
		{[]string{"GET", "none"}, ""},
	} {
		out := command(t, cli, append([]string{"-h", p.host, "-p", p.port}, c.args...)...)
		if got := strings.TrimSpace(out); got != c.want {
			t.Errorf("%q: %q, want %q", c.args, got, c.want)
		}
	}
	if front, back := p.stop(); front.total < 4 || front.toTarget == 0 || front.toTarget != back.toTarget || front.fromTarget != back.fromTarget {
		t.Errorf("counters: front %+v, back %+v", front, back)
	}
}

func TestRedisBenchmark(t *testing.T) {
	if testing.Short() {
		t.Skip("40 000 requests twice")
	}
	const requests = 20_000
	benchmark := tool(t, "redis-benchmark")
	p := startPair(t, startRedis(t))
	for _, pipeline := range []string{"1", "16"} {
		out := command(t, benchmark, "-h", p.host, "-p", p.port,
			"-t", "set,get", "-n", fmt.Sprint(requests), "-c", "50", "-q", "-P", pipeline)
		for _, want := range []string{`SET: [0-9.]+ requests per second`, `GET: [0-9.]+ requests per second`} {
			if !regexp.MustCompile(want).MatchString(out) {
				t.Errorf("-P %s: no %q in:\n%s", pipeline, want, out)
			}
		}
		if regexp.MustCompile(`(?i)err|could not|reset|closed`).MatchString(out) {
			t.Errorf("-P %s:\n%s", pipeline, out)
		}
	}
	// A SET with a key and 3 bytes is at least 30 bytes, and its answer 5. A GET is
	// alike.
	front, back := p.stop()
	for name, c := range map[string]counters{"front": front, "back": back} {
		if c.total < 4*50 || c.toTarget < 2*2*requests*20 || c.fromTarget < 2*2*requests*5 {
			t.Errorf("the %s proxy's counters do not cover the benchmark: %+v", name, c)
		}
	}
}

func TestRedisTransferByteForByte(t *testing.T) {
	if testing.Short() {
		t.Skip("256 MiB each way")
	}
	const size, values = 16 << 20, 16
	p := startPair(t, startRedis(t))
	c := p.front.dial(0)
	c.SetDeadline(time.Now().Add(2 * testTimeout))
	redis := bufio.NewReadWriter(bufio.NewReaderSize(c, 1<<16), bufio.NewWriterSize(c, 1<<16))

	seed := [32]byte{1}
	random := rand.NewChaCha8(seed)
	sent, received := sha256.New(), sha256.New()
	value := make([]byte, size)
	for i := range values {
		random.Read(value)
		sent.Write(value)
		fmt.Fprintf(redis, "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n", size)
		redis.Write(value)
		redis.WriteString("\r\n")
		wantLine(t, redis, "+OK")
		redis.WriteString("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n")
		wantLine(t, redis, fmt.Sprintf("$%d", size))
		if _, err := io.CopyN(received, redis, size); err != nil {
			t.Fatalf("value %d: %v", i, err)
		}
		wantLine(t, redis, "")
	}
	if s, r := sent.Sum(nil), received.Sum(nil); string(s) != string(r) {
		t.Errorf("SHA-256 of what was sent %x, of what came back %x (seed %x)", s, r, seed)
	}
	// After this stop finds no open connection, and all bytes are counted.
	closeBothWays(t, c)
	front, back := p.stop()
	if front.aborted != 0 || front.toTarget < size*values || front.fromTarget < size*values ||
		front.toTarget != back.toTarget || front.fromTarget != back.fromTarget {
		t.Errorf("the counters do not cover the transfer: front %+v, back %+v", front, back)
	}
}

func wantLine(t *testing.T, rw *bufio.ReadWriter, want string) {
	t.Helper()
	if err := rw.Flush(); err != nil {
		t.Fatal(err)
	}
	line, err := rw.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSuffix(line, "\r\n"); got != want {
		t.Fatalf("redis says %.100q, want %q", got, want)
	}
}

// closeBothWays ends c's direction and waits for the end of the other.
func closeBothWays(t *testing.T, c net.Conn) {
	t.Helper()
	if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, c); err != nil || n != 0 {
		t.Fatalf("%d bytes more, then %v; want the end", n, err)
	}
	c.Close()
}
