package benchmarks

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/spec"
)

// envRole makes the test binary one of the other processes of a benchmark. Its value is a
// role.
const envRole = "NTBNET_BENCHMARKS_ROLE"

// roles are what the other processes do. A role may write lines for the process that started
// it. Its process ends when it returns, or when its standard input does.
var roles = map[string]func(args []string) error{
	"serve":  serve,
	"load":   load,
	"wake":   wake,
	"build":  build,
	"idle":   idle,
	"shmipc": serveShmipc,
	"word":   answerWords,
	"copies": consume,
	"bare":   serveBare,
	"relay":  relay,
	"node":   serveNode,
	"pe":     servePE,
	"twin":   twin,
}

func TestMain(m *testing.M) {
	if role := os.Getenv(envRole); role != "" {
		// The terminal's signals are for the process that started this one.
		signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
		if err := roles[role](os.Args[1:]); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", role, err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	for _, p := range pairs {
		if err := p.close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// process is another process, as the one that started it sees it.
type process struct {
	*exec.Cmd
	stdin io.WriteCloser
	out   *bufio.Reader
}

// start starts this program again, with files as its descriptors from 3 on.
func start(role string, files []*os.File, args ...string) (*process, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), envRole+"="+role)
	cmd.ExtraFiles = files
	return startCommand(cmd)
}

func startCommand(cmd *exec.Cmd) (*process, error) {
	cmd.Stderr = os.Stderr
	stdin, inErr := cmd.StdinPipe()
	stdout, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr, cmd.Start()); err != nil {
		return nil, err
	}
	return &process{cmd, stdin, bufio.NewReader(stdout)}, nil
}

// startFor is start for a benchmark, at whose end the process is ended.
func startFor(b *testing.B, role string, files []*os.File, args ...string) *process {
	b.Helper()
	p, err := start(role, files, args...)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := p.end(); err != nil {
			b.Errorf("%s: %v", role, err)
		}
	})
	return p
}

// line returns the next line that the process writes.
func (p *process) line() (string, error) {
	s, err := p.out.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("a process ended early: %w", err)
	}
	return strings.TrimSuffix(s, "\n"), nil
}

// patience is how long a process may take to end. It is killed then.
const patience = 30 * time.Second

func (p *process) end() error {
	p.stdin.Close()
	defer time.AfterFunc(patience, func() { p.Process.Kill() }).Stop()
	return p.Wait()
}

// untilParentEnds returns when the standard input ends.
func untilParentEnds() error {
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// exitWithParent ends this process when its standard input does.
func exitWithParent() {
	go func() {
		_ = untilParentEnds()
		os.Exit(0)
	}()
}

// load computes until its standard input ends.
func load([]string) error {
	exitWithParent()
	fmt.Println("busy")
	for n := uint64(0); ; n++ {
		sink = n
	}
}

// sink makes the work of load visible, so that it is not optimized away.
var sink uint64

// freshName returns the name of a fabric that no other process has.
func freshName() string { return fmt.Sprintf("bench-%d-%08x", os.Getpid(), rand.Uint32()) }

// removeFabric removes what the fabric of a name has left. Processes that use it are about
// to end.
func removeFabric(name string) error {
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		err := spec.Remove(name)
		if !errors.Is(err, syscall.EBUSY) || time.Now().After(end) {
			return err
		}
	}
}

// sizeText returns 64, 16K or 1M.
func sizeText(n int) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%dM", n>>20)
	case n >= 1<<10:
		return fmt.Sprintf("%dK", n>>10)
	}
	return fmt.Sprint(n)
}

// missing skips a benchmark whose peer is not installed.
func missing(b *testing.B, what string) {
	b.Helper()
	if os.Getenv("CI") == "true" {
		b.Fatalf("CI needs %s", what)
	}
	b.Skipf("needs %s", what)
}

// measure calls f for each path, in each of b.N rounds, and returns the medians.
func measure(b *testing.B, paths []string, f func(path string) float64) map[string]float64 {
	all, m := map[string][]float64{}, map[string]float64{}
	for round := range b.N {
		for i := range paths {
			path := paths[(i+round)%len(paths)]
			all[path] = append(all[path], f(path))
		}
	}
	for path, values := range all {
		m[path] = median(values)
	}
	b.ReportMetric(0, "ns/op")
	return m
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
