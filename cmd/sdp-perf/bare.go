package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/ntbnet/ntbnet/internal/perf"
	"github.com/ntbnet/ntbnet/internal/perf/hops"
	"github.com/ntbnet/ntbnet/internal/perf/limits"
)

// bareCommand is a process of a bare chain. Its arguments are the number of hops and its own
// number. It inherits the shared memory as its first descriptor after the standard ones, and
// runs until its standard input ends.
const bareCommand = "limits-chain"

// bareChain is a bare chain: the processes, and their first one, which is this one.
type bareChain struct {
	*limits.Chain
	processes []*bareProcess
	forget    func() bool // forgets the context
}

// bareProcess is one of the others.
type bareProcess struct {
	cmd   *exec.Cmd
	stdin io.Closer
	ended chan error // gets one value when the process has ended
}

// startBare starts a bare chain over n hops. When ctx ends, or a process does, a measurement
// under way fails. died is called when a process has ended, also by Close.
func startBare(ctx context.Context, n int, died func()) (*bareChain, error) {
	c, file, err := limits.NewChain(n)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	b := &bareChain{Chain: c}
	b.forget = context.AfterFunc(ctx, c.Stop)
	for i := 1; i <= n; i++ {
		if err := b.start(file, n, i, died); err != nil {
			return nil, errors.Join(fmt.Errorf("start process %d of a chain: %w", i, err), b.Close())
		}
	}
	return b, nil
}

func (b *bareChain) start(file *os.File, n, i int, died func()) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(exe, bareCommand, strconv.Itoa(n), strconv.Itoa(i))
	cmd.ExtraFiles = []*os.File{file}
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return err
	}
	p := &bareProcess{cmd: cmd, stdin: stdin, ended: make(chan error, 1)}
	b.processes = append(b.processes, p)
	go func() {
		err := cmd.Wait()
		died()
		b.Stop()
		p.ended <- err
	}()
	return nil
}

// Pass implements hops.Chain. Round trips are of one word, and what goes one way is 64 KiB.
func (b *bareChain) Pass(_ context.Context, test perf.Test, _ int, d time.Duration) (hops.Passage, error) {
	before := b.Yields()
	p, err := passage(b.pids(), b.run(test, d))
	p.Yields = b.Yields() - before
	return p, err
}

// Calls implements hops.Chain.
func (b *bareChain) Calls(_ context.Context, test perf.Test, _ int, d time.Duration) (hops.Calls, error) {
	return counted(b.pids(), b.run(test, d))
}

func (b *bareChain) pids() []int {
	pids := []int{os.Getpid()}
	for _, p := range b.processes {
		pids = append(pids, p.cmd.Process.Pid)
	}
	return pids
}

// run returns a function that passes words along and back, or pieces along.
func (b *bareChain) run(test perf.Test, d time.Duration) func() (hops.Outcome, error) {
	return func() (hops.Outcome, error) {
		measure := b.RoundTrips
		if test == perf.OneWay {
			measure = b.Stream
		}
		v, n, err := measure(d)
		return messages(test, hops.Outcome{Value: v, Messages: n}), err
	}
}

// Close ends the processes and waits for them. No measurement may be under way.
func (b *bareChain) Close() error {
	b.forget()
	for _, p := range b.processes {
		p.stdin.Close()
	}
	var err error
	for i, p := range b.processes {
		if endErr := <-p.ended; endErr != nil && err == nil {
			err = fmt.Errorf("process %d of a chain: %w", i+1, endErr)
		}
	}
	return errors.Join(err, b.Chain.Close())
}

// runBare is a process of a bare chain.
func runBare(_ context.Context, args []string, _ io.Writer) error {
	ignoreSignals()
	if len(args) != 2 {
		return badInputf("%s is started by sdp-perf itself", bareCommand)
	}
	n, nErr := strconv.Atoi(args[0])
	i, iErr := strconv.Atoi(args[1])
	if err := errors.Join(nErr, iErr); err != nil {
		return badInputf("%s is started by sdp-perf itself (%w)", bareCommand, err)
	}
	if err := limits.ServeChain(os.NewFile(helperMemory, "limits"), n, i, os.Stdin); err != nil {
		return badInputf("%s is started by sdp-perf itself (%w)", bareCommand, err)
	}
	return nil
}
