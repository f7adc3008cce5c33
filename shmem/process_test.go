package shmem

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/ntbnet/ntbnet/internal/testing/ntbdma"
	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/require"
)

// The process of a PE runs this test binary with the name of a body in envBody.
const (
	envBody = "SHMEM_TEST_BODY"
	envArgs = "SHMEM_TEST_ARGS" // PE, PEs, job, fabric, mode, and perhaps how long Open waits
)

// body is what each PE of a test runs. Another process finds it by its name.
type body func(t require.TestingT, w *World)

// bodies are the functions that the process of a PE may run. Each test file adds
// its own.
var bodies = map[string]body{}

func TestMain(m *testing.M) {
	if name := os.Getenv(envBody); name != "" {
		os.Exit(runBody(name, strings.Fields(os.Getenv(envArgs))))
	}
	os.Exit(m.Run())
}

// childT is require.TestingT in the process of a PE.
type childT struct{}

func (childT) Errorf(format string, args ...any) { fmt.Fprintf(os.Stderr, format, args...) }
func (childT) FailNow() {
	debug.PrintStack()
	os.Exit(1)
}

func runBody(name string, args []string) int {
	opts := []Option{HeapLimit(256 << 20)}
	if len(args) > 0 && strings.Contains(args[3], "heap=") || os.Getenv("SHMEM_SYMMETRIC_SIZE") != "" {
		opts = nil // what fits, or what that says
	}
	if len(args) > 0 { // without arguments the launcher says
		pe, _ := strconv.Atoi(args[0])
		n, _ := strconv.Atoi(args[1])
		opts = append(opts, PE(pe, n, args[2]), Fabric(args[3]))
		opts = append(opts, modes[args[4]]...)
		if len(args) > 5 {
			limit, _ := time.ParseDuration(args[5])
			opts = append(opts, Timeout(limit))
		}
	}
	w, err := Open(context.Background(), opts...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	bodies[name](childT{}, w)
	if err := w.Close(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// processes runs a body on n PEs, each a process. fabric makes the fabric of each
// PE; nil means one host.
func processes(t *testing.T, name string, n int, mode string, fabric func(job string, pe int) string) {
	t.Helper()
	var wg sync.WaitGroup
	for pe, cmd := range start(t, name, n, mode, fabric) {
		wg.Go(func() {
			if err := cmd.Wait(); err != nil {
				t.Errorf("PE %d of %d: %v\n%s", pe, n, err, cmd.Stderr)
			}
		})
	}
	wg.Wait()
}

// start starts the PEs. It kills each PE that has not ended after three minutes.
func start(t *testing.T, name string, n int, mode string, fabric func(job string, pe int) string) []*exec.Cmd {
	t.Helper()
	if testing.Short() {
		t.Skip("processes: not with the race detector, which does not see what they share")
	}
	require.Contains(t, bodies, name)
	job := fabrictest.Name(t)
	if fabric == nil {
		fabric = func(job string, _ int) string { return "shm:" + job }
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	var all []*exec.Cmd
	for pe := range n {
		cmd := exec.CommandContext(ctx, os.Args[0])
		cmd.Env = append(os.Environ(), envBody+"="+name, fmt.Sprintf("%s=%d %d %s %s %s", envArgs, pe, n, job, fabric(job, pe), mode))
		cmd.Stderr = new(bytes.Buffer)
		require.NoError(t, cmd.Start())
		all = append(all, cmd)
	}
	return all
}

// ringOf returns a fabric where each PE is a node of a ring.
func ringOf(n int) func(job string, pe int) string {
	return func(job string, pe int) string { return fmt.Sprintf("ring:%s?node=%d&nodes=%d", job, pe+1, n) }
}

func init() { bodies["basics"] = basics }

// basics puts, gets and adds between all PEs.
func basics(t require.TestingT, w *World) {
	ctx, c, n := context.Background(), w.Ctx(), w.NumPEs()
	s, err := Alloc[int64](ctx, w, 100_000)
	require.NoError(t, err)
	sum, err := AllocZeroed[int32](ctx, w, 1)
	require.NoError(t, err)
	right, left := (w.PE()+1)%n, (w.PE()+n-1)%n
	src := make([]int64, s.Len()-1)
	for i := range src {
		src[i] = int64(w.PE()*1_000_000 + i)
	}
	Put(c, s.From(1), src, right)
	for pe := range n {
		AtomicAdd(c, sum, 0, int32(w.PE()+1), pe)
	}
	require.NoError(t, w.Team().Barrier(ctx))
	require.Equal(t, int64(left*1_000_000+len(src)-1), s.Local()[len(src)])
	got := make([]int64, len(src))
	Get(c, got, s.From(1), right)
	require.Equal(t, src, got)
	require.Equal(t, int32(n*(n+1)/2), AtomicFetch(c, sum, 0, left))
	P(c, s, 0, int64(-1-w.PE()), right)
	require.NoError(t, WaitUntil(ctx, s, 0, Eq, int64(-1-left)))
	require.NoError(t, w.Team().Barrier(ctx))
	require.NoError(t, c.Err())
}

func TestBasics(t *testing.T) {
	t.Run("DMA", func(t *testing.T) {
		const fabric = "mem:basics-dma?dmafrom=512"
		engines, err := sdp.OpenWith(fabric, sdp.Devices{Wrap: ntbdma.Around(ntbdma.Options{Channels: 1})})
		require.NoError(t, err)
		defer engines.Close() // the PEs share it
		run(t, 2, fabric, modes["strict"], func(w *World) { basics(t, w) })
	})
	each(t, []int{1, 2, 3, 4, 7}, func(t *testing.T, w *World) { basics(t, w) })
	for mode := range modes {
		for _, n := range []int{2, 4} {
			t.Run(fmt.Sprintf("processes/%s/%d", mode, n), func(t *testing.T) { processes(t, "basics", n, mode, nil) })
		}
	}
	for n := 3; n <= 5; n += 2 {
		t.Run(fmt.Sprintf("ring/%d", n), func(t *testing.T) { processes(t, "basics", n, "mapped", ringOf(n)) })
	}
}
