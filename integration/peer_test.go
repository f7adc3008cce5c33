//go:build linux

package integration

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
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

	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// peerVariable makes the test binary a second process of a test.
const peerVariable = "INTEGRATION_PEER"

// roles are the functions that a second process can run.
var roles = map[string]func(p *self) error{
	"http":      playHTTP,
	"rpc":       playRPC,
	"hit":       playHit,
	"serve":     playServe,
	"end":       playEnd,
	"stranger":  playStranger,
	"turncoat":  playTurncoat,
	"tcp":       playTCP,
	"nofabric":  playNoFabric,
	"lab":       playLab,
	"open-only": playOpenOnly,
	"echo":      playEcho,
	"sum":       playSum,
	"soak":      playSoak,
	"drop":      playDrop,
	"idle":      playIdle,
	"taken":     playTaken,
	"connect":   playConnect,
	"whole":     playWhole,
	"user":      playUser,
	"hijacker":  playHijacker,
	"blocker":   playBlocker,
	"cage":      playCage,
	"changer":   playChanger,
	"crowd":     playCrowd,
	"puncher":   playPuncher,
	"strict":    playStrict,
	"charged":   playCharged,
	"borrower":  playBorrower,
	"placed":    playPlaced,
	"runner":    playRunner,
	"operator":  playOperator,
	"pour":      playPour,
	"selftest":  playSelftest,
	"planter":   playPlanter,
}

func init() {
	if role := os.Getenv(peerVariable); role != "" {
		// The role does not run here. This goroutine is bound to its thread during
		// initialization, which makes each wait far slower than in a program.
		status := make(chan int)
		go func() { status <- play(role) }()
		os.Exit(<-status)
	}
}

// self is this process, when it is the second one of a test.
type self struct {
	args []string
	in   *bufio.Scanner
	mu   sync.Mutex // held while a line is written
}

// play runs a role and returns the exit status. What the role leaves behind is a
// failure too.
func play(name string) int {
	p := &self{args: os.Args[1:], in: bufio.NewScanner(os.Stdin)}
	reporter := &peerReporter{}
	leak.Check(reporter)
	if err := roles[name](p); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 1
	}
	return reporter.finish()
}

// printf writes a line to the test.
func (p *self) printf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Printf(format+"\n", args...)
}

// readLine waits for a line of the test. It returns false when the test is done with
// this process.
func (p *self) readLine() (string, bool) {
	ok := p.in.Scan()
	return p.in.Text(), ok
}

// answerAll answers each line of the test with what do returns for its words, as JSON, until the
// test is done with this process.
func (p *self) answerAll(do func(words []string) any) error {
	for {
		line, ok := p.readLine()
		if !ok {
			return nil
		}
		b, err := json.Marshal(do(words(line)))
		if err != nil {
			return err
		}
		p.printf("%s", b)
	}
}

// stay waits until the test is done with this process.
func (p *self) stay() {
	for {
		if _, ok := p.readLine(); !ok {
			return
		}
	}
}

// peerReporter is the part of a testing.TB that leak.Check needs.
type peerReporter struct {
	testing.TB
	cleanup []func()
	failed  bool
}

func (r *peerReporter) Helper()          {}
func (r *peerReporter) Failed() bool     { return r.failed }
func (r *peerReporter) Cleanup(f func()) { r.cleanup = append(r.cleanup, f) }
func (r *peerReporter) Errorf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	r.failed = true
}

func (r *peerReporter) finish() int {
	for _, f := range r.cleanup {
		f()
	}
	if r.failed {
		return 1
	}
	return 0
}

// peer is the second process of a test, as the test sees it. It is killed when the
// test ends.
type peer struct {
	t      testing.TB
	role   string
	cmd    *exec.Cmd
	in     io.WriteCloser
	lines  chan string   // closed at the end of its output
	exited chan struct{} // closed when it has ended
	stderr bytes.Buffer  // complete when exited is closed
	guard  time.Duration // how long readLine waits
}

// peerOption changes the command before it starts.
type peerOption func(*exec.Cmd)

// asUser runs exe as a user that has no other rights.
func asUser(exe string, uid int) peerOption {
	return func(c *exec.Cmd) {
		c.Path = exe
		c.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}
	}
}

func startPeer(t testing.TB, role string, args []string, options ...peerOption) *peer {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	p := &peer{t: t, role: role, cmd: exec.Command(exe, args...), lines: make(chan string, 64), exited: make(chan struct{}), guard: testTimeout}
	p.cmd.Dir = "/"
	// The race detector makes a program wait for a second when it ends.
	p.cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"), peerVariable+"="+role)
	p.cmd.Stderr = &p.stderr
	// If the tests die, so does the process.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	for _, o := range options {
		o(p.cmd)
	}
	p.in, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
		close(p.lines)
		p.cmd.Wait() // the status is in ProcessState
		close(p.exited)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() && p.stderr.Len() > 0 {
			t.Logf("%s %q wrote: %s", role, args, p.stderr.String())
		}
	})
	return p
}

// readLine waits for the next line of the peer.
func (p *peer) readLine() string {
	p.t.Helper()
	select {
	case line, ok := <-p.lines:
		if !ok {
			<-p.exited
			p.t.Fatalf("%s has ended: %v: %s", p.role, p.cmd.ProcessState, p.stderr.String())
		}
		return line
	case <-time.After(p.guard):
		p.cmd.Process.Signal(syscall.SIGQUIT) // so that the log shows its goroutines
		select {
		case <-p.exited:
		case <-time.After(time.Second):
		}
		p.t.Fatalf("%s says nothing", p.role)
	}
	return ""
}

// ask sends a line and returns the answer.
func (p *peer) ask(question string) string {
	p.t.Helper()
	_, err := fmt.Fprintln(p.in, question)
	require.NoError(p.t, err)
	return p.readLine()
}

// askFor is ask for an answer that is JSON.
func (p *peer) askFor(question string, answer any) {
	p.t.Helper()
	line := p.ask(question)
	require.NoError(p.t, json.Unmarshal([]byte(line), answer), "%q", line)
}

// end informs the peer that the test is done with it. The peer must end well and have
// complained of nothing.
func (p *peer) end() {
	p.t.Helper()
	p.in.Close()
	p.wait()
	require.Equal(p.t, 0, p.cmd.ProcessState.ExitCode(), "%s: %v: %s", p.role, p.cmd.ProcessState, p.stderr.String())
	p.quiet()
}

// linkLog is what a process logs of a wire whose link does not come up or goes down, and of one that did come up after that.
var linkLog = regexp.MustCompile(`(?m)^.* fabric: (there is no link, it is tried again|the link has (come up|gone down)) .*\n`)

// quiet fails the test if the peer complained, but for links that did not come up or went down.
func (p *peer) quiet() {
	p.t.Helper()
	require.Empty(p.t, linkLog.ReplaceAllString(p.stderr.String(), ""), "%s complained", p.role)
}

// wait waits until the peer has ended by itself.
func (p *peer) wait() {
	p.t.Helper()
	late := time.After(testTimeout)
	for lines := p.lines; ; {
		select {
		case _, ok := <-lines:
			if !ok {
				lines = nil
			}
		case <-p.exited:
			return
		case <-late:
			p.t.Fatalf("%s does not end", p.role)
		}
	}
}

// kill ends the peer at once, as kill -9 does, and waits until it is gone.
func (p *peer) kill() {
	p.cmd.Process.Kill() // an error means that it has ended
	p.in.Close()
	for range p.lines {
	}
	<-p.exited
}

// newFabric makes a fabric for a test and the processes that it starts, and returns
// its name. After the test, nothing may be left in this process. Of the fabric only
// its directory with one empty file may be left, once a process has
// joined it that removes the sockets of those that were killed. It is removed.
func newFabric(t testing.TB) string {
	t.Helper()
	leak.Check(t)
	name := fmt.Sprintf("it-%d-%08x", os.Getpid(), rand.Uint32())
	dir := filepath.Join(fabricBase(os.Geteuid()), name)
	t.Setenv("SDP_FABRIC", "shm:"+name)
	t.Cleanup(func() {
		defer os.RemoveAll(dir)
		if _, err := os.Stat(dir); t.Skipped() && errors.Is(err, fs.ErrNotExist) {
			return // before it was used
		}
		if t.Failed() { // half-way; let at least the default Fabric end before the next test
			for end := time.Now().Add(5 * time.Second); claimed(t, dir) && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			return
		}
		until(t, "the last claim in "+dir+" is dropped", func() bool { return !claimed(t, dir) })
		f, err := sdp.Open("shm:" + name)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		require.Len(t, dirNames(t, dir), 1, "in %s", dir)
		info, err := os.Stat(filepath.Join(dir, claimFile))
		require.NoError(t, err)
		require.Zero(t, info.Size(), "the claim file is not empty")
	})
	return name
}

// listenSDP listens until the test ends. Accept fails if no connection comes.
func listenSDP(t *testing.T) net.Listener {
	t.Helper()
	ln, err := sdp.Listen("sdp", "localhost:0")
	require.NoError(t, err)
	t.Cleanup(func() { ln.Close() })
	require.NoError(t, ln.(*sdp.Listener).SetDeadline(time.Now().Add(testTimeout)))
	return ln
}

// acceptSDP accepts, checks the addresses, and closes the connection at the end of
// the test.
func acceptSDP(t *testing.T, ln net.Listener) *sdp.Conn {
	t.Helper()
	c, err := ln.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	require.NoError(t, wantSDP(c))
	return c.(*sdp.Conn)
}

// dialSDP dials, checks the addresses, and closes the connection at the end of the
// test.
func dialSDP(t *testing.T, address string) *sdp.Conn {
	t.Helper()
	c, err := sdp.Dial("sdp", address)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	require.NoError(t, wantSDP(c))
	noNamedMemory(t)
	return c.(*sdp.Conn)
}

// noNamedMemory checks that the shared memory of this process has no name by which
// another process could find it, or that would outlive it.
func noNamedMemory(t *testing.T) {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	require.Contains(t, string(maps), " /memfd:", "it shares no memory")
	require.NotContains(t, string(maps), " /dev/shm/")
}

// fabricBase returns the directory of a user's fabrics, see package
// internal/fabric.
func fabricBase(uid int) string {
	run := fmt.Sprintf("/run/user/%d", uid)
	if _, err := os.Stat(run); err == nil {
		return filepath.Join(run, "ntbnet")
	}
	return fmt.Sprintf("/tmp/ntbnet-%d", uid)
}

// claimFile is the name of the claim file in a fabric's directory.
const claimFile = "claims-v2"

// onlyClaims checks that a fabric's directory has nothing but the claim file and sockets. It
// identifies the claim file.
func onlyClaims(t testing.TB, dir string) string {
	t.Helper()
	for _, name := range dirNames(t, dir) {
		if name != claimFile {
			require.Regexp(t, `^cable-[0-9]+-[0-9a-f]{32}$`, name)
		}
	}
	info, err := os.Stat(filepath.Join(dir, claimFile))
	require.NoError(t, err)
	return strconv.FormatUint(info.Sys().(*syscall.Stat_t).Ino, 10)
}

// sockets returns the paths of the sockets in a fabric's directory.
func sockets(t testing.TB, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "cable-*"))
	require.NoError(t, err)
	return found
}

// claimed reports whether any process holds a claim in a fabric's directory.
func claimed(t testing.TB, dir string) bool {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, claimFile), os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	require.NoError(t, unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock))
	return lock.Type != unix.F_UNLCK
}

func dirNames(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// until waits until ok returns true.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(testTimeout); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("did not happen in time: %s", what)
		}
	}
}

// long returns n with NTBNET_LONG, else short.
func long(n, short int64) int64 {
	if longRun() {
		return n
	}
	return short
}

// wantSDP checks that a connection is of this transport, and its addresses.
func wantSDP(c net.Conn) error {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	if _, ok := c.(*sdp.Conn); !ok {
		return fmt.Errorf("the connection is a %T", c)
	}
	for _, a := range []net.Addr{c.LocalAddr(), c.RemoteAddr()} {
		if _, _, err := net.SplitHostPort(a.String()); err != nil {
			return fmt.Errorf("address %s of network %s: %v", a, a.Network(), err)
		}
	}
	return nil
}

// stream is a sequence of bytes that both sides know. Its period is a prime, so
// that no buffer's size is a multiple of it.
type stream struct{ at int }

const streamPeriod = 1_000_003

// streamBytes has the period twice, so that pieces need not be cut at its end.
var streamBytes = sync.OnceValue(func() []byte {
	b := make([]byte, streamPeriod, 2*streamPeriod)
	rand.NewChaCha8([32]byte{}).Read(b) // never fails
	return append(b, b...)
})

// newStream returns a stream that depends on seed. The period is the number of
// different streams.
func newStream(seed int) *stream { return &stream{seed * 499 % streamPeriod} }

// next returns the next bytes, at most n and at most the period.
func (s *stream) next(n int) []byte {
	b := streamBytes()[s.at:][:min(n, streamPeriod)]
	s.at = (s.at + len(b)) % streamPeriod
	return b
}

// Read never fails and never ends.
func (s *stream) Read(p []byte) (int, error) { return copy(p, s.next(len(p))), nil }

var errWrongBytes = errors.New("wrong bytes")

// Write checks that p continues the stream.
func (s *stream) Write(p []byte) (n int, err error) {
	for n < len(p) {
		want := s.next(len(p) - n)
		if !bytes.Equal(p[n:n+len(want)], want) {
			return n, errWrongBytes
		}
		n += len(want)
	}
	return n, nil
}

// readExactly reads n bytes of the stream from r.
func (s *stream) readExactly(r io.Reader, n int64) error {
	got, err := io.CopyBuffer(struct{ io.Writer }{s}, struct{ io.Reader }{io.LimitReader(r, n)}, make([]byte, 64<<10))
	if err == nil && got < n {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return fmt.Errorf("read, after %d bytes of %d: %w", got, n, err)
	}
	return nil
}

// words splits a line.
func words(line string) []string { return strings.Fields(line) }
