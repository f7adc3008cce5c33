package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/ntbnet/ntbnet/internal/perf"
	"github.com/ntbnet/ntbnet/internal/perf/bench"
	"github.com/ntbnet/ntbnet/internal/perf/limits"
	"github.com/ntbnet/ntbnet/ntb"
)

// benchFlags are the flags of bench. The default run takes about 3 minutes.
type benchFlags struct {
	transports []string
	items      []string
	rounds     int
	duration   time.Duration
	cpus       cpus
	maxTime    maxTime
	quick      bool
	json       bool
	svg        string
	shmipc     string
}

func (b *benchFlags) register(fs *flagSet) {
	fs.StringSliceVar(&b.transports, "transports", perf.Networks, "what to measure; the first is compared with the others")
	fs.StringSliceVar(&b.items, "items", nil, "rows of the table, of "+strings.Join(bench.Items, ",")+" (default all)")
	fs.IntVar(&b.rounds, "rounds", defaultRounds, "how often everything is measured, 1 to 1000")
	fs.DurationVar(&b.duration, "duration", defaultDuration, "of one measurement, 1ms to 1m")
	b.cpus.register(fs)
	b.maxTime.register(fs, benchMaxTime)
	fs.BoolVar(&b.quick, "quick", false, "one very short round: to see that it works, not for figures")
	fs.BoolVar(&b.json, "json", false, "print the result as JSON")
	fs.StringVar(&b.svg, "svg", "", "write latency and throughput against message size to `FILE`")
	fs.StringVar(&b.shmipc, "shmipc", "", "measure shmipc-go too, by the `PROGRAM` made in benchmarks/")
}

// plan checks the flags. changed reports which were given. The caller starts the
// processes.
func (b *benchFlags) plan(changed func(flag string) bool) (bench.Plan, error) {
	switch {
	case b.rounds < 1 || b.rounds > 1000:
		return bench.Plan{}, badInputf("--rounds %d: use a number from 1 to 1000", b.rounds)
	case b.duration < time.Millisecond || b.duration > time.Minute:
		return bench.Plan{}, badInputf("--duration %v: use a time from 1ms to 1m", b.duration)
	}
	if err := b.maxTime.check(); err != nil {
		return bench.Plan{}, err
	}
	if n := bench.CheckItems(b.items); n != "" {
		return bench.Plan{}, badInputf("--items: unknown item %q: use %s", n, strings.Join(bench.Items, ", "))
	}
	p := bench.Plan{
		Items: b.items, Rounds: b.rounds, Duration: b.duration,
		VerifyBytes: verifyBytes, Effort: limits.Full,
		Load: startLoad, Idle: idleElsewhere(defaultIdleConnections, defaultIdleDuration),
	}
	if b.svg != "" {
		p.SweepRounds, p.SweepDuration = 3, 100*time.Millisecond
	}
	if b.quick {
		p.Effort, p.VerifyBytes = limits.Quick, 1<<20
		if !changed("rounds") {
			p.Rounds = 1
		}
		if !changed("duration") {
			p.Duration = 5 * time.Millisecond
		}
		p.Window = p.Duration
		p.SweepRounds, p.SweepDuration = min(p.SweepRounds, 1), 2*time.Millisecond
		p.Idle = idleElsewhere(20, 100*time.Millisecond)
	}
	return p, checkTransports(b.transports)
}

// runBench measures the whole table.
func runBench(ctx context.Context, args []string, out io.Writer) error {
	var flags benchFlags
	fs := newFlagSet("bench")
	flags.register(fs)
	if helped, err := fs.parse(args, out); helped || err != nil {
		return err
	}
	plan, err := flags.plan(fs.Changed)
	if err != nil {
		return err
	}
	if err := flags.cpus.apply(fs.Changed("cpus")); err != nil {
		return err
	}
	if err := checkFabric(flags.transports); err != nil {
		return err
	}
	picture, err := createPicture(flags.svg)
	if err != nil {
		return err
	}
	defer picture.Close()
	line := newProgress(os.Stderr)
	plan.Progress, plan.Budget = line.show, flags.maxTime.budget()
	report, err := benchAll(ctx, plan, flags)
	line.clear()
	if err != nil {
		return err
	}
	if flags.svg != "" {
		if err := errors.Join(report.Picture(picture), picture.Close()); err != nil {
			return err
		}
	}
	if flags.json {
		err = writeJSON(out, report)
	} else {
		err = report.Table(out)
	}
	if failed := report.Failures(flags.transports); err == nil && len(failed) > 0 {
		err = fmt.Errorf("%d of the figures could not be measured: %s", len(failed), failed[0])
	}
	return err
}

// createPicture creates the file before the measurement, so that a bad name is an
// error at once. Without a name it returns nil, which can be closed too.
func createPicture(name string) (*os.File, error) {
	if name == "" {
		return nil, nil
	}
	f, err := os.Create(name)
	if err != nil {
		return nil, badInputf("--svg: %w", err)
	}
	return f, nil
}

// benchAll starts the processes, measures, and ends them.
func benchAll(ctx context.Context, plan bench.Plan, flags benchFlags) (report *bench.Report, err error) {
	dir, err := os.MkdirTemp("", "sdp-perf-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	child, nets, err := networks(ctx, dir, flags.transports)
	if err != nil {
		return nil, err
	}
	defer func() {
		if state := child.stop(); err != nil && !state.Success() {
			err = fmt.Errorf("%w (the second process: %v)", err, state)
		}
	}()
	for _, n := range nets {
		if n.Name() == "sdp" {
			n.SpinOff = &lazyWorker{transport: n.Name(), fabric: freshName("shm") + spinOff}
		}
		plan.Transports = append(plan.Transports, n)
	}
	if flags.shmipc != "" {
		peers, err := startPeer(ctx, flags.shmipc)
		if err != nil {
			return nil, err
		}
		plan.Transports = slices.Concat(plan.Transports, peers)
	}
	defer func() {
		for _, t := range plan.Transports {
			_ = t.Close() // nothing more comes from it
		}
	}()
	h, why, err := benchHelper(ctx)
	if err != nil {
		return nil, err
	}
	plan.NoLimits = why
	if h != nil {
		plan.Limits = h.Meter
		defer func() { err = errors.Join(err, h.close()) }()
	}
	return bench.Run(ctx, plan)
}

// benchHelper returns a helper, or nil and why the limits cannot be measured.
func benchHelper(ctx context.Context) (h *helper, why string, err error) {
	if runtime.NumCPU() < 2 {
		return nil, "both sides spin, which takes two processors", nil
	}
	h, err = startHelper(ctx)
	if errors.Is(err, ntb.ErrNotSupported) {
		return nil, err.Error(), nil
	}
	return h, "", err
}
