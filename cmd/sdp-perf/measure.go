package main

import (
	"context"
	"io"
	"os"
	"runtime/pprof"

	"github.com/ntbnet/ntbnet/internal/perf"
)

// measure carries out a plan and prints the report.
func measure(ctx context.Context, plan perf.Plan, flags measureFlags, out io.Writer) error {
	stopProfile, err := startProfile(flags.cpuProfile)
	if err != nil {
		return err
	}
	line := newProgress(os.Stderr)
	plan.Progress, plan.Budget = line.show, flags.maxTime.budget()
	report, err := perf.Run(ctx, plan)
	line.clear()
	if profileErr := stopProfile(); err == nil {
		err = profileErr
	}
	if err != nil {
		return err
	}
	if flags.json {
		return writeJSON(out, report)
	}
	return report.Table(out)
}

// startProfile starts a CPU profile. Without a name it does nothing.
func startProfile(name string) (stop func() error, err error) {
	if name == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(name)
	if err != nil {
		return nil, badInputf("--cpuprofile: %w", err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		f.Close()
		return nil, err
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}
