package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/ntbnet/ntbnet/internal/fabric"
	"github.com/ntbnet/ntbnet/internal/flags"
	"github.com/ntbnet/ntbnet/internal/launch"
	"github.com/spf13/pflag"
)

const usageHead = `shmemrun starts the PEs of an OpenSHMEM job on this machine.

Usage: shmemrun [-n N] [FLAGS] PROGRAM [ARGUMENTS...]

Examples:
  shmemrun -n 4 ./prog              # four PEs
  shmemrun -n 4 -l ./prog           # each line of output with its PE before it
  shmemrun --hosts 4 ./prog         # each PE a node of a ring of its own

Flags, before PROGRAM:
`

const usageTail = `
Each PE has SHMEM_PE, SHMEM_NPES and SHMEM_JOB in its environment, and SDP_FABRIC:
without --hosts what is there already, else a fabric of the job's own. PE 0 gets the
standard input, the others an empty one.

Signals: INT, TERM, HUP, QUIT, USR1, USR2, WINCH, TSTP and CONT are passed on to all
PEs. A second INT or TERM ends the job. If a PE fails, the others are ended: TERM,
and KILL after the grace time.

Exit status: 0 if all PEs' is; else that of the PE which failed first, 128 and the
signal's number if a signal killed it. 124 after --timeout, 126 if PROGRAM cannot be
run, 127 if it is not found, 2 if the command line or SDP_FABRIC is wrong.
`

// options are the parsed command line.
type options struct {
	n        int
	prefix   bool
	timeout  time.Duration // 0 for none
	grace    time.Duration
	hosts    int // 0 for one host
	topology string
	extra    string   // options of the fabric
	command  []string // the program and its arguments
}

// maxHosts is the largest number of nodes in a fabric. Package fabric checks it
// too.
const maxHosts = 16

// parseOptions parses the command line. The error is pflag.ErrHelp after it wrote
// the help or the version to stdout. Otherwise it is one line that says what to do.
func parseOptions(args []string, stdout io.Writer) (options, error) {
	var o options
	fs := pflag.NewFlagSet("shmemrun", pflag.ContinueOnError)
	fs.SetOutput(io.Discard) // run writes the one line
	fs.SortFlags = false
	fs.SetInterspersed(false) // the flags behind PROGRAM belong to it
	fs.IntVarP(&o.n, "n", "n", 0, fmt.Sprintf("start `N` PEs, 1 to %d; as many as there are CPUs, or hosts, unless given", launch.MaxPEs))
	fs.BoolVarP(&o.prefix, "prefix", "l", false, "write [PE] before each line of output, and lines in one piece")
	fs.DurationVar(&o.timeout, "timeout", 0, "end the job after this; 0 for no limit")
	fs.DurationVar(&o.grace, "grace", 2*time.Second, "from TERM to KILL, when the job is ended")
	fs.IntVar(&o.hosts, "hosts", 0, fmt.Sprintf("make each PE a node of a new fabric of `N` hosts, 2 to %d", maxHosts))
	fs.StringVar(&o.topology, "topology", "ring", "how the hosts are cabled: `ring`, line or mesh")
	fs.StringVar(&o.extra, "fabric-options", "", "more `OPTIONS` of the job's own fabric, as in SDP_FABRIC: 'spin=0&buffer=1048576'")
	fs.Usage = func() {
		fmt.Fprint(stdout, usageHead, fs.FlagUsages(), usageTail)
	}
	if err := flags.Parse(fs, args, stdout); err != nil {
		return options{}, err
	}
	o.command = fs.Args()
	if err := o.check(fs); err != nil {
		return options{}, err
	}
	return o, nil
}

func (o *options) check(fs *pflag.FlagSet) error {
	switch {
	case len(o.command) == 0 || o.command[0] == "":
		return errors.New("no program to start, as in shmemrun -n 4 ./prog")
	case fs.Changed("hosts") && (o.hosts < 2 || o.hosts > maxHosts):
		return fmt.Errorf("--hosts %d: want 2 to %d", o.hosts, maxHosts)
	case fs.Changed("n") && (o.n < 1 || o.n > launch.MaxPEs):
		return fmt.Errorf("-n %d: want 1 to %d PEs", o.n, launch.MaxPEs)
	case o.hosts > 0 && fs.Changed("n") && o.n != o.hosts:
		return fmt.Errorf("-n %d with --hosts %d: each host has one PE; leave one of them out", o.n, o.hosts)
	case !slices.Contains([]string{"ring", "line", "mesh"}, o.topology):
		return fmt.Errorf("--topology %s: want ring, line or mesh", o.topology)
	case fs.Changed("topology") && o.hosts == 0:
		return errors.New("--topology needs --hosts")
	case o.timeout < 0:
		return fmt.Errorf("--timeout %v: cannot be negative", o.timeout)
	case o.grace < 0:
		return fmt.Errorf("--grace %v: cannot be negative", o.grace)
	case o.extra != "" && !o.ownFabric():
		return errors.New("--fabric-options are of the job's own fabric, but SDP_FABRIC is set: unset it, or write them there")
	}
	if o.hosts > 0 {
		o.n = o.hosts
	} else if o.n == 0 {
		o.n = min(runtime.NumCPU(), launch.MaxPEs)
	}
	if !o.ownFabric() {
		return checkGiven(os.Getenv(fabric.EnvFabric))
	}
	_, err := fabric.ParseSpec(o.fabric(launch.NewName(), o.n-1))
	return err
}

// checkGiven checks the fabric that the PEs find in their environment.
func checkGiven(text string) error {
	spec, err := fabric.ParseSpec(text)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", fabric.EnvFabric, err)
	case spec.InProcess():
		return fmt.Errorf("%s: %s is memory of one process, and each PE is a process", fabric.EnvFabric, text)
	}
	return nil
}

// ownFabric reports whether the job gets a fabric of its own.
func (o *options) ownFabric() bool {
	return o.hosts > 0 || os.Getenv(fabric.EnvFabric) == ""
}

// fabricName returns the name of the job's own fabric.
func fabricName(job string) string { return "shmem-" + job }

// fabric returns the fabric for a PE, as an argument of sdp.Open. It is part of the
// job's own fabric.
func (o *options) fabric(job string, pe int) string {
	spec, sep := fabric.OneHost(fabricName(job)), "?"
	if o.hosts > 0 {
		spec, sep = fmt.Sprintf("%s:%s?node=%d&nodes=%d", o.topology, fabricName(job), pe+1, o.hosts), "&"
	}
	if o.extra != "" {
		spec += sep + o.extra
	}
	return spec
}

// environment returns base with the variables that say which PE of the job the
// process is.
func (o *options) environment(base []string, job string, pe int) []string {
	set := []string{
		fmt.Sprintf("SHMEM_PE=%d", pe),
		fmt.Sprintf("SHMEM_NPES=%d", o.n),
		"SHMEM_JOB=" + job,
	}
	if o.ownFabric() {
		set = append(set, fabric.EnvFabric+"="+o.fabric(job, pe))
	}
	// No variable is there twice, since programs differ in which one counts.
	var vars []string
	for _, v := range base {
		name, _, _ := strings.Cut(v, "=")
		if !slices.ContainsFunc(set, func(s string) bool { return strings.HasPrefix(s, name+"=") }) {
			vars = append(vars, v)
		}
	}
	return append(vars, set...)
}
