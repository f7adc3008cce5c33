package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"

	"github.com/ntbnet/ntbnet/internal/perf"
	"github.com/ntbnet/ntbnet/internal/perf/limits"
)

// helperCommand is the second process of the limits. It inherits the shared memory
// as its first descriptor after the standard ones. It reads commands from its
// standard input until that ends.
const (
	helperCommand = "limits-helper"
	helperMemory  = 3
)

// runLimits measures what the machine allows.
func runLimits(ctx context.Context, args []string, out io.Writer) error {
	fs := newFlagSet("limits")
	asJSON := fs.Bool("json", false, "print the result as JSON")
	quick := fs.Bool("quick", false, "two short runs: to see that it works, not for figures")
	hopsList := fs.IntSlice("hops", []int{2, 3, 4}, fmt.Sprintf("over how many hops one word goes along a chain of processes, each 1 to %d", limits.MaxHops))
	var most maxTime
	most.register(fs, limitsMaxTime)
	if helped, err := fs.parse(args, out); helped || err != nil {
		return err
	}
	if len(*hopsList) == 0 || slices.Min(*hopsList) < 1 || slices.Max(*hopsList) > limits.MaxHops {
		return badInputf("--hops: use numbers from 1 to %d", limits.MaxHops)
	}
	slices.Sort(*hopsList)
	if err := most.check(); err != nil {
		return err
	}
	effort := limits.Full
	if *quick {
		effort = limits.Quick
	}
	h, err := startHelper(ctx)
	if err != nil {
		return err
	}
	report, err := measureLimits(ctx, h, slices.Compact(*hopsList), effort, most.budget())
	if err = errors.Join(err, h.close()); err != nil {
		return err
	}
	if *asJSON {
		return writeJSON(out, report)
	}
	return report.Table(out)
}

// measureLimits starts the chains and measures everything.
func measureLimits(ctx context.Context, h *helper, hops []int, effort limits.Effort, budget *perf.Budget) (*limits.Report, error) {
	line := newProgress(os.Stderr)
	line.show("measuring the limits")
	defer line.clear()
	var started []*bareChain
	var chains []*limits.Chain
	var report *limits.Report
	var err error
	for _, n := range hops {
		var c *bareChain
		if c, err = startBare(ctx, n, h.Stop); err != nil {
			break
		}
		started, chains = append(started, c), append(chains, c.Chain)
	}
	if err == nil {
		report, err = h.Measure(effort, budget, 1, chains...)
	}
	for _, c := range started {
		err = errors.Join(err, c.Close())
	}
	return report, err
}

func writeJSON(out io.Writer, v any) error {
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// helper is the second process and the meter with it.
type helper struct {
	*limits.Meter
	mem    *limits.Memory
	stdin  io.Closer
	forget func() bool // forgets the context
	ended  chan error  // gets one value when the process has ended
}

// startHelper starts the second process. When ctx ends, or the process does, a
// measurement under way fails.
func startHelper(ctx context.Context) (*helper, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	mem, file, err := limits.NewMemory()
	if err != nil {
		return nil, err
	}
	defer file.Close()
	cmd := exec.Command(exe, helperCommand)
	cmd.ExtraFiles = []*os.File{file}
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the second process: %w", err), mem.Close())
	}
	h := &helper{Meter: limits.NewMeter(mem, stdin), mem: mem, stdin: stdin, ended: make(chan error, 1)}
	h.forget = context.AfterFunc(ctx, h.Stop)
	go func() {
		h.ended <- cmd.Wait()
		h.Stop()
	}()
	return h, nil
}

// close ends the process and waits for it. No measurement may be under way.
func (h *helper) close() error {
	h.forget()
	h.stdin.Close()
	err := <-h.ended
	if err != nil {
		err = fmt.Errorf("the second process: %w", err)
	}
	return errors.Join(err, h.mem.Close())
}

// runHelper runs the second process.
func runHelper(_ context.Context, args []string, _ io.Writer) error {
	ignoreSignals()
	if len(args) != 0 {
		return badInputf("%s is started by sdp-perf itself", helperCommand)
	}
	mem, err := limits.OpenMemory(os.NewFile(helperMemory, "limits"))
	if err != nil {
		return badInputf("%s is started by sdp-perf itself (%w)", helperCommand, err)
	}
	return errors.Join(limits.Serve(mem, os.Stdin), mem.Close())
}
