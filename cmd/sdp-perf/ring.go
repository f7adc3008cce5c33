package main

import (
	"context"
	"io"
	"os"
	"slices"
	"time"

	"github.com/ntbnet/ntbnet/internal/perf/hops"
	"github.com/ntbnet/ntbnet/internal/perf/limits"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/ntbnet/ntbnet/ring"
)

// The default run takes about a minute.
const (
	ringRounds   = 3
	ringDuration = 25 * time.Millisecond
)

// runRing measures rings of node processes, and chains of processes.
func runRing(ctx context.Context, args []string, out io.Writer) error {
	fs := newFlagSet("ring")
	nodes := fs.IntSlice("nodes", []int{3, 4, 5, 6, 7, 8}, "how many nodes, each 2 to 16")
	hopsList := fs.IntSlice("hops", []int{1, 2, 3, 4}, "over how many hops, each 1 to 8; a ring of N has up to N/2, a chain N-1")
	lanes := fs.IntSlice("lanes", []int{1, 2, 4, 8}, "lanes of each link, each 1 to 8")
	rounds := fs.Int("rounds", ringRounds, "how often each figure is taken, 1 to 1000")
	duration := fs.Duration("duration", ringDuration, "of one figure in one round, 1ms to 1m")
	var on cpus
	on.register(fs)
	var most maxTime
	most.register(fs, ringMaxTime)
	only := fs.String("only", "", "rings, or chains: a line of nodes beside relays of sockets and the bare limit (default both)")
	asJSON := fs.Bool("json", false, "print the result as JSON; it has every round of the chains")
	if helped, err := fs.parse(args, out); helped || err != nil {
		return err
	}
	for _, f := range []struct {
		name        string
		values      *[]int
		first, last int
	}{{"nodes", nodes, 2, 16}, {"hops", hopsList, 1, 8}, {"lanes", lanes, 1, 8}} {
		if len(*f.values) == 0 || slices.Min(*f.values) < f.first || slices.Max(*f.values) > f.last {
			return badInputf("--%s: use numbers from %d to %d", f.name, f.first, f.last)
		}
		slices.Sort(*f.values)
		*f.values = slices.Compact(*f.values)
	}
	switch {
	case *rounds < 1 || *rounds > 1000:
		return badInputf("--rounds %d: use a number from 1 to 1000", *rounds)
	case *duration < time.Millisecond || *duration > time.Minute:
		return badInputf("--duration %v: use a time from 1ms to 1m", *duration)
	case *only != "" && *only != "rings" && *only != "chains":
		return badInputf("--only %s: use rings or chains", *only)
	case *only != "chains" && slices.Min(*hopsList) > slices.Max(*nodes)/2:
		return badInputf("--hops %d: a ring of %d nodes has at most %d", slices.Min(*hopsList), slices.Max(*nodes), slices.Max(*nodes)/2)
	}
	if err := most.check(); err != nil {
		return err
	}
	if err := on.apply(fs.Changed("cpus")); err != nil {
		return err
	}
	line := newProgress(os.Stderr)
	plan := hops.Plan{
		Nodes: *nodes, Hops: *hopsList, Lanes: *lanes, Rounds: *rounds, Duration: *duration, Budget: most.budget(),
		Start: func(ctx context.Context, s hops.Shape) (hops.Ring, error) {
			r, err := startRing(ctx, s)
			if err != nil {
				return nil, err
			}
			return r, nil
		},
		StartChain: startChain, Yield: limits.Yield, Progress: line.show,
		Forward: func(size, n int) (time.Duration, time.Duration, error) { return ring.ForwardCost(ntbmem.Pair, size, n) },
	}
	switch *only {
	case "rings":
		plan.StartChain = nil
	case "chains":
		plan.Nodes = nil
	}
	report, err := hops.Run(ctx, plan)
	line.clear()
	if err != nil {
		return err
	}
	if *asJSON {
		return writeJSON(out, report)
	}
	return report.Table(out)
}
