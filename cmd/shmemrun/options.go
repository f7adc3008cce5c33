package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ntbnet/ntbnet/internal/flags"
	"github.com/ntbnet/ntbnet/internal/launch"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/spf13/pflag"
)

const usageHead = `shmemrun starts the PEs of an OpenSHMEM job on this machine.

Usage: shmemrun [-n N] [FLAGS] PROGRAM [ARGS...] [: -n N PROGRAM [ARGS...]]...

Examples:
  shmemrun -n 4 ./prog              # four PEs
  shmemrun -n 4 -l ./prog           # each line of output with its PE before it
  shmemrun --hosts 4 ./prog         # each PE a node of a ring of its own
  shmemrun -n 4 --hosts 2 ./prog    # two PEs on each of two nodes
  shmemrun -n 1 ./a : -n 3 ./b      # PE 0 runs another program

Flags, before PROGRAM:
`

const usageTail = `
As for mpirun, flags may have one dash, -np is -n, --tag-output is --prefix,
--timeout takes seconds without a unit, and --oversubscribe has no effect: it is
always so. Only -n, -x and --wdir may follow a colon.

Hosts are nodes of a new fabric, all on this machine. PEs are placed in blocks,
or in turn by --map-by node; srun says --distribution block and cyclic. A host
file is as for mpiexec.hydra's -f: lines NAME or NAME:COUNT, begun again for
further PEs. Its names only tell the hosts apart.

Each PE has SHMEM_PE, SHMEM_NPES and SHMEM_JOB in its environment, and
SDP_FABRIC: without hosts what is there already, else a fabric of the job's own.
PE 0 gets the standard input, the others an empty one.

Signals: INT, TERM, HUP, QUIT, USR1, USR2, WINCH, TSTP and CONT are passed on to
all PEs. A second INT or TERM ends the job. If a PE fails, the others are ended:
TERM, and KILL after the grace time.

Exit status: 0 if all PEs' is; else that of the PE which failed first, 128 and
the signal's number if a signal killed it; 1 if one exited before it joined and
others wait for it. When a PE has failed, those that notice are not ended before
they have said so. 124 after --timeout, 126 if PROGRAM cannot be run, 127 if it
is not found, 2 if the command line, the host file or SDP_FABRIC is wrong.
`

// options are the parsed command line.
type options struct {
	n        int
	prefix   bool
	timeout  time.Duration // 0 for none
	grace    time.Duration
	hosts    int // 0 for one host
	hostFile string
	mapBy    string
	at       []int // the host of each PE, from 0; nil for one host
	topology string
	extra    string // options of the fabric
	bind     string // bindCore or bindNone
	files    string // directory for the PEs' output, "" for none
	programs []program
}

// Values of --bind-to.
const (
	bindCore = "core"
	bindNone = "none"
)

// program is what some PEs run, those behind the PEs of the programs before it.
type program struct {
	n       int
	env     []string // NAME=VALUE; a NAME alone is in the environment anyway
	dir     string   // where it runs, "" for here
	command []string // the program and its arguments
	path    string   // set by find
}

// find finds the program's file, and the directory in which it runs, which PWD names too.
func (p *program) find() error {
	name := p.command[0]
	if p.dir != "" {
		dir, err := filepath.Abs(p.dir)
		if err != nil {
			return err
		}
		if _, err := os.Stat(dir + "/."); err != nil {
			return fmt.Errorf("--wdir %s: %w", p.dir, errors.Unwrap(err))
		}
		p.dir, p.env = dir, slices.Insert(p.env, 0, "PWD="+dir)
	}
	if p.dir != "" && strings.Contains(name, "/") && !filepath.IsAbs(name) {
		name = filepath.Join(p.dir, name)
	}
	path, err := exec.LookPath(name)
	if err == nil {
		p.path, err = filepath.Abs(path)
	}
	return err
}

// program returns the program of a PE.
func (o *options) program(pe int) *program {
	i := 0
	for ; pe >= o.programs[i].n; i++ {
		pe -= o.programs[i].n
	}
	return &o.programs[i]
}

// maxHosts is the largest number of nodes in a fabric. Package fabric checks it
// too.
const maxHosts = 16

// parseOptions parses the command line. The error is pflag.ErrHelp after it wrote
// the help or the version to stdout. Otherwise it is one line that says what to do.
func parseOptions(args []string, stdout io.Writer) (options, error) {
	o := options{bind: bindNone, grace: 2 * time.Second, topology: "ring", mapBy: bySlot}
	var first *pflag.FlagSet
	for len(o.programs) == 0 || args != nil {
		section := args
		if i := slices.Index(args, ":"); i >= 0 {
			section, args = args[:i], args[i+1:]
		} else {
			args = nil
		}
		var p program
		fs := o.flagSet(&p, stdout)
		if err := flags.Parse(fs, translated(fs, section), stdout); err != nil {
			return options{}, err
		}
		if p.command = fs.Args(); len(p.command) == 0 || p.command[0] == "" {
			return options{}, errors.New("no program to start, as in shmemrun -n 4 ./prog")
		}
		if fs.Changed("n") && (p.n < 1 || p.n > launch.MaxPEs) {
			return options{}, fmt.Errorf("-n %d: want 1 to %d PEs", p.n, launch.MaxPEs)
		}
		if several := first != nil || args != nil; several && p.n == 0 {
			return options{}, fmt.Errorf("-n is missing: each of several programs needs it, as in -n 1 ./a : -n 3 %s", p.command[0])
		}
		var err error
		if first == nil {
			first = fs
		} else {
			fs.Visit(func(f *pflag.Flag) {
				if !slices.Contains([]string{"n", "x", "wdir"}, f.Name) {
					err = fmt.Errorf("--%s belongs before the first program", f.Name)
				}
			})
		}
		if err != nil {
			return options{}, err
		}
		o.n += p.n
		o.programs = append(o.programs, p)
	}
	if err := o.check(first); err != nil {
		return options{}, err
	}
	return o, nil
}

// flagSet returns the flags, and how a program's PEs are started.
func (o *options) flagSet(p *program, stdout io.Writer) *pflag.FlagSet {
	fs := flags.New("shmemrun", stdout, usageHead, usageTail)
	fs.SetInterspersed(false) // the flags behind PROGRAM belong to it
	fs.IntVarP(&p.n, "n", "n", 0, fmt.Sprintf("start `N` PEs, 1 to %d; as many as there are CPUs, hosts, or places in the host file, unless given", launch.MaxPEs))
	fs.StringArrayVarP(&p.env, "x", "x", nil, "add `NAME=VALUE` to the PEs' environment; a NAME alone is there anyway")
	fs.StringVar(&p.dir, "wdir", "", "run the program in `DIR`")
	fs.BoolVarP(&o.prefix, "prefix", "l", o.prefix, "write [PE] before each line of output, and lines in one piece")
	fs.StringVar(&o.files, "output-filename", o.files, "write each PE's output to `DIR`/1/rank.PE/stdout and stderr only")
	fs.StringVar(&o.bind, "bind-to", o.bind, "`core` binds each PE to a core, in turn; none binds none")
	fs.DurationVar(&o.timeout, "timeout", o.timeout, "end the job after this; 0 for no limit")
	fs.DurationVar(&o.grace, "grace", o.grace, "from TERM to KILL, when the job is ended")
	fs.IntVar(&o.hosts, "hosts", o.hosts, fmt.Sprintf("place the PEs on the nodes of a new fabric of `N` hosts, 2 to %d", maxHosts))
	fs.StringVarP(&o.hostFile, "hostfile", "f", o.hostFile, "the same, as `FILE` has it")
	fs.StringVarP(&o.mapBy, "map-by", "m", o.mapBy, "`slot` fills a host before the next one, node goes round")
	fs.StringVar(&o.topology, "topology", o.topology, "how the hosts are cabled: `ring`, line or mesh")
	fs.StringVar(&o.extra, "fabric-options", o.extra, "more `OPTIONS` of the job's own fabric, as in SDP_FABRIC: 'spin=0&buffer=1048576'")
	fs.Bool("oversubscribe", false, "nothing: there may be more PEs than CPUs anyway")
	return fs
}

// otherNames are names of flags that mpirun has.
var otherNames = map[string]string{"np": "n", "wd": "wdir", "tag-output": "prefix", "machinefile": "hostfile", "distribution": "map-by"}

// translated returns args as pflag knows them. Before the program, a flag with a long name may have one
// dash, and the name that mpirun has for it.
func translated(fs *pflag.FlagSet, args []string) (all []string) {
	for i := 0; i < len(args); i++ {
		arg := args[i]
		name, value, given := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if !strings.HasPrefix(arg, "-") || name == "" {
			return append(all, args[i:]...)
		}
		f := fs.Lookup(cmp.Or(otherNames[name], name))
		if len(name) == 1 {
			f = fs.ShorthandLookup(name)
		}
		if f == nil {
			all = append(all, arg)
			continue
		}
		arg = "--" + f.Name
		if !given && f.NoOptDefVal == "" && i+1 < len(args) {
			i++
			value, given = args[i], true
		}
		if given {
			if _, err := strconv.Atoi(value); err == nil && f.Name == "timeout" && value != "0" {
				value += "s"
			}
			arg += "=" + value
		}
		all = append(all, arg)
	}
	return all
}

func (o *options) check(fs *pflag.FlagSet) error {
	switch {
	case fs.Changed("hosts") && (o.hosts < 2 || o.hosts > maxHosts):
		return fmt.Errorf("--hosts %d: want 2 to %d", o.hosts, maxHosts)
	case o.hosts > 0 && o.hostFile != "":
		return errors.New("--hosts with --hostfile: the file has the hosts; leave one of them out")
	case !slices.Contains([]string{bySlot, block, byNode, cycle}, o.mapBy):
		return fmt.Errorf("--map-by %s: want slot or node, or block or cyclic", o.mapBy)
	case fs.Changed("map-by") && o.hosts == 0 && o.hostFile == "":
		return errors.New("--map-by needs --hosts or --hostfile")
	case !slices.Contains([]string{"ring", "line", "mesh"}, o.topology):
		return fmt.Errorf("--topology %s: want ring, line or mesh", o.topology)
	case fs.Changed("topology") && o.hosts == 0 && o.hostFile == "":
		return errors.New("--topology needs --hosts or --hostfile")
	case o.bind != bindCore && o.bind != bindNone:
		return fmt.Errorf("--bind-to %s: want core or none", o.bind)
	case o.prefix && o.files != "":
		return errors.New("--prefix with --output-filename: each PE has files of its own; leave one of them out")
	case o.timeout < 0:
		return fmt.Errorf("--timeout %v: cannot be negative", o.timeout)
	case o.grace < 0:
		return fmt.Errorf("--grace %v: cannot be negative", o.grace)
	case o.extra != "" && !o.ownFabric():
		return errors.New("--fabric-options are of the job's own fabric, but SDP_FABRIC is set: unset it, or write them there")
	case o.ownFabric() && slices.ContainsFunc(o.programs, func(p program) bool { return slices.ContainsFunc(p.env, namesFabric) }):
		return errors.New("-x SDP_FABRIC=… has no effect, since the job has a fabric of its own: set SDP_FABRIC for shmemrun too")
	}
	if err := o.placed(); err != nil {
		return err
	}
	o.n = cmp.Or(o.n, min(runtime.NumCPU(), launch.MaxPEs))
	if o.n > launch.MaxPEs {
		return fmt.Errorf("-n %d in all: want at most %d PEs", o.n, launch.MaxPEs)
	}
	if len(o.programs) == 1 {
		o.programs[0].n = o.n
	}
	if !o.ownFabric() {
		return checkGiven(os.Getenv(spec.EnvFabric))
	}
	_, err := spec.Parse(o.fabric(launch.NewName(), o.n-1))
	return err
}

// checkGiven checks the fabric that the PEs find in their environment.
func checkGiven(text string) error {
	s, err := spec.Parse(text)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", spec.EnvFabric, err)
	case s.InProcess():
		return fmt.Errorf("%s: %s is memory of one process, and each PE is a process", spec.EnvFabric, text)
	}
	return nil
}

func namesFabric(variable string) bool { return strings.HasPrefix(variable, spec.EnvFabric+"=") }

// ownFabric reports whether the job gets a fabric of its own.
func (o *options) ownFabric() bool {
	return o.hosts > 0 || o.hostFile != "" || os.Getenv(spec.EnvFabric) == ""
}

// fabricName returns the name of the job's own fabric.
func fabricName(job string) string { return "shmem-" + job }

// fabric returns the fabric for a PE, as an argument of sdp.Open. It is part of the
// job's own fabric.
func (o *options) fabric(job string, pe int) string {
	spec, sep := spec.OneHost(fabricName(job)), "?"
	if o.hosts > 0 {
		spec, sep = fmt.Sprintf("%s:%s?node=%d&nodes=%d", o.topology, fabricName(job), o.at[pe]+1, o.hosts), "&"
	}
	if o.n > o.hosts && o.hosts > 0 {
		spec += "&share=1" // the first PE of a node owns its links
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
		launch.EnvReport + "=3", // see start
	}
	if o.ownFabric() {
		set = append(set, spec.EnvFabric+"="+o.fabric(job, pe))
	}
	// Of what is there twice, package exec passes the last on.
	return slices.DeleteFunc(append(base, set...), func(v string) bool { return !strings.Contains(v, "=") })
}
