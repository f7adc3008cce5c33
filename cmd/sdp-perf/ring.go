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

// ringFlags are the flags of sdp-perf ring.
type ringFlags struct {
	nodes, hops, lanes *[]int
	rounds             *int
	duration           *time.Duration
	on                 cpus
	most               maxTime
	only               *string
	asJSON             *bool
}

func (f *ringFlags) register(fs *flagSet) {
	f.nodes = fs.IntSlice("nodes", []int{3, 4, 5, 6, 7, 8}, "how many nodes, each 2 to 16")
	f.hops = fs.IntSlice("hops", []int{1, 2, 3, 4}, "over how many hops, each 1 to 8; a ring of N has up to N/2, a chain N-1")
	f.lanes = fs.IntSlice("lanes", []int{1, 2, 4, 8}, "lanes of each link, each 1 to 8")
	f.rounds = fs.Int("rounds", ringRounds, "how often each figure is taken, 1 to 1000")
	f.duration = fs.Duration("duration", ringDuration, "of one figure in one round, 1ms to 1m")
	f.on.register(fs)
	f.most.register(fs, ringMaxTime)
	f.only = fs.String("only", "", "rings, or chains: a line of nodes beside relays of sockets and the bare limit (default both)")
	f.asJSON = fs.Bool("json", false, "print the result as JSON; it has every round of the chains")
}

// check checks the flags, and sorts the lists.
func (f *ringFlags) check() error {
	for _, list := range []struct {
		name        string
		values      *[]int
		first, last int
	}{{"nodes", f.nodes, 2, 16}, {"hops", f.hops, 1, 8}, {"lanes", f.lanes, 1, 8}} {
		v := list.values
		if len(*v) == 0 || slices.Min(*v) < list.first || slices.Max(*v) > list.last {
			return badInputf("--%s: use numbers from %d to %d", list.name, list.first, list.last)
		}
		slices.Sort(*v)
		*v = slices.Compact(*v)
	}
	hops, nodes := slices.Min(*f.hops), slices.Max(*f.nodes)
	switch {
	case *f.rounds < 1 || *f.rounds > 1000:
		return badInputf("--rounds %d: use a number from 1 to 1000", *f.rounds)
	case *f.duration < time.Millisecond || *f.duration > time.Minute:
		return badInputf("--duration %v: use a time from 1ms to 1m", *f.duration)
	case *f.only != "" && *f.only != "rings" && *f.only != "chains":
		return badInputf("--only %s: use rings or chains", *f.only)
	case *f.only != "chains" && hops > nodes/2:
		return badInputf("--hops %d: a ring of %d nodes has at most %d", hops, nodes, nodes/2)
	}
	return f.most.check()
}

// plan returns what is measured.
func (f *ringFlags) plan() hops.Plan {
	plan := hops.Plan{
		Nodes: *f.nodes, Hops: *f.hops, Lanes: *f.lanes, Rounds: *f.rounds, Duration: *f.duration, Budget: f.most.budget(),
		Start: func(ctx context.Context, s hops.Shape) (hops.Ring, error) {
			r, err := startRing(ctx, s)
			if err != nil {
				return nil, err
			}
			return r, nil
		},
		StartChain: startChain, Yield: limits.Yield,
		Forward: func(size, n int) (time.Duration, time.Duration, error) { return ring.ForwardCost(ntbmem.Pair, size, n) },
	}
	switch *f.only {
	case "rings":
		plan.StartChain = nil
	case "chains":
		plan.Nodes = nil
	}
	return plan
}

// runRing measures rings of node processes, and chains of processes.
func runRing(ctx context.Context, args []string, out io.Writer) error {
	fs := newFlagSet("ring")
	var f ringFlags
	f.register(fs)
	if helped, err := fs.parse(args, out); helped || err != nil {
		return err
	}
	if err := f.check(); err != nil {
		return err
	}
	if err := f.on.apply(fs.Changed("cpus")); err != nil {
		return err
	}
	line := newProgress(os.Stderr)
	plan := f.plan()
	plan.Progress = line.show
	report, err := hops.Run(ctx, plan)
	line.clear()
	if err != nil {
		return err
	}
	if *f.asJSON {
		return writeJSON(out, report)
	}
	return report.Table(out)
}
