package mplite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/ntbnet/ntbnet/shmem"
)

// The process of a PE runs this test binary with the name of a body in envBody.
const (
	envBody = "MPLITE_TEST_BODY"
	envArgs = "MPLITE_TEST_ARGS" // PE, PEs, job, fabric, mode
)

// bodies are the functions that the process of a PE may run.
var bodies = map[string]func(c *Comm) error{
	"traffic": func(c *Comm) error {
		return traffic(c, 7, 30, []int{4, 8, 9, 24, 4096, 100_000})
	},
	"one dies before it sends":    oneDies(func(c *Comm, last int) error { return ignoreLast(Recv(background, c, []byte{0}, last, 1)) }),
	"one dies before it probes":   oneDies(func(c *Comm, last int) error { return ignoreLast(c.Probe(background, AnySource, AnyTag)) }),
	"one dies before it receives": oneDies(func(c *Comm, last int) error { return Send(background, c, make([]byte, 8<<20), last, 1) }),
}

func ignoreLast(_ Last, err error) error { return err }

// oneDies has the last PE end without Close while the others wait for it.
func oneDies(call func(c *Comm, last int) error) func(c *Comm) error {
	return func(c *Comm) error {
		last := c.NumPEs() - 1
		if err := c.w.Team().Barrier(background); err != nil {
			return err
		}
		if c.PE() == last {
			time.Sleep(20 * time.Millisecond) // the others wait by now
			os.Exit(0)
		}
		err := call(c, last)
		var dead *shmem.DeadError
		if !errors.As(err, &dead) { // the error may be of a PE that heard of the end earlier and has ended too
			return fmt.Errorf("PE %d was told %v", c.PE(), err)
		}
		os.Exit(0)
		return nil
	}
}

func TestMain(m *testing.M) {
	name := os.Getenv(envBody)
	if name == "" {
		os.Exit(m.Run())
	}
	if err := runBody(bodies[name], strings.Fields(os.Getenv(envArgs))); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func runBody(body func(c *Comm) error, args []string) error {
	pe, _ := strconv.Atoi(args[0])
	n, _ := strconv.Atoi(args[1])
	opts := append([]shmem.Option{shmem.PE(pe, n, args[2]), shmem.Fabric(args[3]), shmem.HeapLimit(256 << 20)}, modes[args[4]]...)
	w, err := shmem.Open(background, opts...)
	if err != nil {
		return err
	}
	c, err := Open(background, w, Options{})
	if err == nil {
		err = body(c)
	}
	if err == nil {
		err = c.Close(background)
	}
	if err == nil {
		err = w.Close(context.Background())
	}
	return err
}

// processes runs a body on n PEs, each a process. It kills those that do not end
// within a minute.
func processes(t *testing.T, name string, n int, mode string, fabric func(job string, pe int) string) {
	t.Helper()
	require.Contains(t, bodies, name)
	job := fabrictest.Name(t)
	ctx, cancel := context.WithTimeout(background, time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for pe := range n {
		cmd := exec.CommandContext(ctx, os.Args[0])
		cmd.Env = append(os.Environ(), envBody+"="+name, fmt.Sprintf("%s=%d %d %s %s %s", envArgs, pe, n, job, fabric(job, pe), mode))
		var out bytes.Buffer
		cmd.Stderr = &out
		require.NoError(t, cmd.Start())
		wg.Go(func() {
			if err := cmd.Wait(); err != nil {
				t.Errorf("PE %d of %d: %v\n%s", pe, n, err, &out)
			}
		})
	}
	wg.Wait()
}

func oneHost(job string, _ int) string { return "shm:" + job }

// ringOf returns a fabric where each PE is a node of a ring.
func ringOf(n int) func(job string, pe int) string {
	return func(job string, pe int) string { return fmt.Sprintf("ring:%s?node=%d&nodes=%d", job, pe+1, n) }
}

func TestTrafficBetweenProcesses(t *testing.T) {
	for mode := range modes {
		for _, n := range []int{2, 4} {
			t.Run(fmt.Sprintf("%s/%d", mode, n), func(t *testing.T) { processes(t, "traffic", n, mode, oneHost) })
		}
	}
	t.Run("ring/4", func(t *testing.T) { processes(t, "traffic", 4, "mapped", ringOf(4)) })
}

func TestADeathEndsCallsThatWait(t *testing.T) {
	for name := range bodies {
		if name == "traffic" {
			continue
		}
		for mode := range modes {
			t.Run(name+"/"+mode, func(t *testing.T) {
				t.Parallel() // the PEs sleep most of the time
				processes(t, name, 3, mode, oneHost)
			})
		}
	}
}
