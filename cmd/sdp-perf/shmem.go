package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/ntbnet/ntbnet/internal/perf"
	"github.com/ntbnet/ntbnet/internal/perf/pgas"
)

const (
	defaultShmemTime = 100 * time.Millisecond
	ringItem         = "ring" // the second table
)

// shmemFlags are the flags of shmem. The default run takes about a minute.
type shmemFlags struct {
	rounds  int
	time    time.Duration
	maxTime maxTime
	items   []string
	openMPI string
	json    bool
}

func shmemItems() []string { return append(pgas.Keys(), ringItem) }

func (f *shmemFlags) register(fs *flagSet) {
	fs.IntVar(&f.rounds, "rounds", defaultRounds, "how often everything is measured, 1 to 1000")
	fs.DurationVar(&f.time, "time", defaultShmemTime, "of one figure in one round, 1ms to 1m")
	f.maxTime.register(fs, shmemMaxTime)
	fs.StringSliceVar(&f.items, "items", shmemItems(), "what to measure")
	fs.StringVar(&f.openMPI, "openmpi", "", "measure Open MPI too, by the `PROGRAM` made of benchmarks/oshmem/perf.c")
	fs.BoolVar(&f.json, "json", false, "print the result as JSON")
}

func (f *shmemFlags) check() error {
	switch {
	case f.rounds < 1 || f.rounds > 1000:
		return badInputf("--rounds %d: use a number from 1 to 1000", f.rounds)
	case f.time < time.Millisecond || f.time > time.Minute:
		return badInputf("--time %v: use a time from 1ms to 1m", f.time)
	case len(f.items) == 0:
		return badInputf("--items: name at least one of %s", strings.Join(shmemItems(), ", "))
	}
	if err := f.maxTime.check(); err != nil {
		return err
	}
	for _, n := range f.items {
		if !slices.Contains(shmemItems(), n) {
			return badInputf("--items: unknown item %q: use %s", n, strings.Join(shmemItems(), ", "))
		}
	}
	return checkProgram(f.openMPI)
}

// checkProgram checks a program before the measurement, so that a bad name is an
// error at once.
func checkProgram(name string) error {
	if name == "" {
		return nil
	}
	if info, err := os.Stat(name); err != nil {
		return badInputf("--openmpi: %w", err)
	} else if info.IsDir() || info.Mode()&0o111 == 0 {
		return badInputf("--openmpi %s: not a program: make it by oshcc of benchmarks/oshmem/perf.c", name)
	}
	if _, err := oshrun(); err != nil {
		return badInputf("--openmpi: %w", err)
	}
	return nil
}

// runShmem measures package shmem between processes.
func runShmem(ctx context.Context, args []string, out io.Writer) error {
	var flags shmemFlags
	fs := newFlagSet("shmem")
	flags.register(fs)
	if helped, err := fs.parse(args, out); helped || err != nil {
		return err
	}
	if err := flags.check(); err != nil {
		return err
	}
	line := newProgress(os.Stderr)
	report, err := measureShmem(ctx, flags, line.show)
	line.clear()
	if err != nil {
		return err
	}
	if flags.json {
		return writeJSON(out, report)
	}
	return report.Table(out)
}

// shmemColumn is what is measured in each round. The jobs of one round are started
// anew, so that none waits while another is measured.
type shmemColumn struct {
	name string
	jobs []func(context.Context) (pgas.Sample, error)
	all  []pgas.Sample // one of each round
}

// round runs all jobs of the column.
func (c *shmemColumn) round(ctx context.Context) error {
	s := pgas.Sample{}
	for _, job := range c.jobs {
		part, err := job(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		maps.Copy(s, part)
	}
	c.all = append(c.all, s)
	return nil
}

func measureShmem(ctx context.Context, flags shmemFlags, show func(string)) (*pgas.Report, error) {
	keys := slices.DeleteFunc(slices.Clone(flags.items), func(k string) bool { return k == ringItem })
	var table, ring []*shmemColumn
	if len(keys) > 0 {
		table = shmemColumns(flags, keys)
	}
	if slices.Contains(flags.items, ringItem) {
		ring = ringColumns(flags)
	}
	all := slices.Concat(table, ring)
	budget := flags.maxTime.budget()
	for i := range budget.Rounds(flags.rounds, 1) {
		for k := range all {
			c := all[(i+k)%len(all)] // each round begins with another column
			show(fmt.Sprintf("round %d of %d: %s", i+1, flags.rounds, c.name))
			if err := c.round(ctx); err != nil {
				return nil, err
			}
		}
	}
	r := pgas.NewReport(perf.ThisHost(), float64(flags.time)/float64(time.Millisecond), measured(table))
	r.Cut = budget.Cut()
	if len(ring) > 0 {
		r.AddRing(measured(ring))
	}
	return r, nil
}

func measured(columns []*shmemColumn) (list []pgas.Column) {
	for _, c := range columns {
		list = append(list, pgas.Column{Name: c.name, Samples: c.all})
	}
	return list
}

// shmemColumns returns the columns of the first table.
func shmemColumns(flags shmemFlags, keys []string) (list []*shmemColumn) {
	sizes := slices.DeleteFunc([]int{2, 4}, func(n int) bool { return len(pgas.Of(n, keys)) == 0 })
	direct, strict := &shmemColumn{name: pgas.Direct}, &shmemColumn{name: pgas.Strict}
	list = []*shmemColumn{direct, strict}
	for _, n := range sizes {
		j := shmemJob{pes: n, peer: 1, topology: "shm", keys: pgas.Of(n, keys), time: flags.time}
		direct.jobs = append(direct.jobs, j.run)
		j.strict, j.keys = true, pgas.Unmapped(j.keys)
		if len(j.keys) > 0 {
			strict.jobs = append(strict.jobs, j.run)
		}
	}
	if flags.openMPI != "" {
		c := &shmemColumn{name: pgas.OpenMPI}
		for _, n := range sizes {
			c.jobs = append(c.jobs, oshJob{flags.openMPI, n, pgas.Of(n, keys), flags.time}.run)
		}
		list = append(list, c)
	}
	return list
}

// ringColumns returns the columns of the second table.
func ringColumns(flags shmemFlags) (list []*shmemColumn) {
	for _, c := range pgas.Cases {
		j := shmemJob{pes: c.PEs, peer: c.Hops, topology: "ring", strict: c.Strict, keys: pgas.RingKeys, time: flags.time}
		list = append(list, &shmemColumn{name: c.Name, jobs: []func(context.Context) (pgas.Sample, error){j.run}})
	}
	return list
}
