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
	"strconv"
	"strings"
	"time"

	"github.com/ntbnet/ntbnet/internal/perf"
	"github.com/ntbnet/ntbnet/internal/perf/bench"
)

const (
	defaultIdleConnections = 1000
	defaultIdleDuration    = 3 * time.Second
)

// runIdle measures idle connections of one transport between this process and a
// second one.
func runIdle(ctx context.Context, args []string, out io.Writer) error {
	fs := newFlagSet("idle")
	transport := fs.String("transport", "sdp", "sdp, tcp or unix")
	connections := fs.Int("connections", defaultIdleConnections, "how many, 1 to 100000")
	duration := fs.Duration("duration", defaultIdleDuration, "how long they idle, 1ms to 10m")
	asJSON := fs.Bool("json", false, "print the result as JSON")
	if helped, err := fs.parse(args, out); helped || err != nil {
		return err
	}
	switch {
	case *connections < 1 || *connections > 100_000:
		return badInputf("--connections %d: use a number from 1 to 100000", *connections)
	case *duration < time.Millisecond || *duration > 10*time.Minute:
		return badInputf("--duration %v: use a time from 1ms to 10m", *duration)
	}
	if !slices.Contains(perf.Networks, *transport) {
		return badInputf("--transport: unknown transport %q: use %s", *transport, strings.Join(perf.Networks, ", "))
	}
	if err := checkFabric([]string{*transport}); err != nil {
		return err
	}
	report, err := idle(ctx, *transport, *connections, *duration)
	if err != nil {
		return err
	}
	if *asJSON {
		return writeJSON(out, report)
	}
	_, err = fmt.Fprintf(out, "%s, idle connections: %d\nCPU of both processes: %.3f %% of a processor in %g s\nPSS of both processes: %.2f KiB for each\n",
		report.Transport, report.Connections, report.CPU, report.Seconds, report.Memory)
	return err
}

func idle(ctx context.Context, transport string, connections int, d time.Duration) (*bench.IdleReport, error) {
	dir, err := os.MkdirTemp("", "sdp-perf-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	list := append(services(dir, commandService, []string{transport}), services(dir, controlService, []string{"unix"})...)
	c, err := startChild(ctx, dir, list)
	if err != nil {
		return nil, err
	}
	report, err := bench.MeasureIdle(ctx, c.endpoints[0], c.endpoints[1], connections, d, dial)
	if state := c.stop(); err != nil && !state.Success() {
		err = fmt.Errorf("%w (the second process: %v)", err, state)
	}
	return report, err
}

// idleCommand is idle in a process of its own. Its arguments are the transport, the
// connections and the duration. It writes an idleAnswer, and ends when its standard
// input does.
const idleCommand = "idle-worker"

type idleAnswer struct {
	Report *bench.IdleReport
	Error  string
}

func runIdleWorker(ctx context.Context, args []string, out io.Writer) error {
	ignoreSignals()
	if len(args) != 3 {
		return badInputf("%s is started by sdp-perf itself", idleCommand)
	}
	connections, err := strconv.Atoi(args[1])
	if err != nil {
		return badInput{err}
	}
	duration, err := time.ParseDuration(args[2])
	if err != nil {
		return badInput{err}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // its end is enough
		cancel(errors.New("interrupted"))
	}()
	var a idleAnswer
	if a.Report, err = idle(ctx, args[0], connections, duration); err != nil {
		a = idleAnswer{Error: oneLine(err)}
	}
	return json.NewEncoder(out).Encode(a)
}

// idleElsewhere returns a function that measures in a process of its own, which has
// done nothing else before.
func idleElsewhere(connections int, d time.Duration) func(context.Context, string) (*bench.IdleReport, error) {
	return func(ctx context.Context, transport string) (*bench.IdleReport, error) {
		exe, err := os.Executable()
		if err != nil {
			return nil, err
		}
		cmd := exec.CommandContext(ctx, exe, idleCommand, transport, strconv.Itoa(connections), d.String())
		cmd.Stderr = os.Stderr
		cmd.WaitDelay = childStop
		stdin, err := cmd.StdinPipe()
		if err != nil {
			return nil, err
		}
		cmd.Cancel = stdin.Close
		b, err := cmd.Output()
		if err != nil {
			return nil, err
		}
		var a idleAnswer
		if err := json.Unmarshal(b, &a); err != nil {
			return nil, err
		}
		if a.Error != "" {
			return nil, errors.New(a.Error)
		}
		return a.Report, nil
	}
}
