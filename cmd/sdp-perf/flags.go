package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/ntbnet/ntbnet/internal/flags"
	"github.com/ntbnet/ntbnet/internal/perf"
)

// Default limits of a command's time, several times what it takes on an idle
// machine.
const (
	limitsMaxTime = 2 * time.Minute
	ringMaxTime   = 3 * time.Minute
	shmemMaxTime  = 3 * time.Minute
)

// maxTime is the flag that limits the time of a command that measures in rounds.
type maxTime struct{ time.Duration }

func (m *maxTime) register(fs *flagSet, d time.Duration) {
	fs.DurationVar(&m.Duration, "max-time", d, "begin no round that would end later than this, 1ms to 24h; at least one is done, and the result says how many were left out")
}

func (m *maxTime) check() error {
	if m.Duration < time.Millisecond || m.Duration > 24*time.Hour {
		return badInputf("--max-time %v: use a time from 1ms to 24h", m.Duration)
	}
	return nil
}

// budget returns a budget that begins now.
func (m *maxTime) budget() *perf.Budget { return perf.NewBudget(m.Duration) }

// flagSet is a pflag.FlagSet that returns mistakes as badInput.
type flagSet struct {
	*pflag.FlagSet
	command string
	help    bool
}

func newFlagSet(command string) *flagSet {
	fs := &flagSet{command: command, FlagSet: pflag.NewFlagSet("sdp-perf", pflag.ContinueOnError)}
	fs.SetOutput(io.Discard)
	fs.SortFlags = false
	fs.BoolVarP(&fs.help, "help", "h", false, "print this")
	return fs
}

// parse returns true if the help or the version was asked for and printed.
func (fs *flagSet) parse(args []string, out io.Writer) (helped bool, err error) {
	err = flags.Parse(fs.FlagSet, args, out)
	if errors.Is(err, pflag.ErrHelp) {
		return true, nil
	}
	if err != nil {
		return false, badInputf("%w (see sdp-perf --help)", err)
	}
	if fs.help {
		return true, fs.printHelp(out)
	}
	if fs.NArg() > 0 {
		return false, badInputf("%q: unexpected argument (see sdp-perf --help)", fs.Arg(0))
	}
	return false, nil
}

// parseTest parses the flags of the tool, with one test among them at most.
func (fs *flagSet) parseTest(args []string, out io.Writer, test *string) (helped bool, err error) {
	err = flags.Parse(fs.FlagSet, args, out)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return true, nil
	case err != nil:
		for old, now := range movedFlags {
			if strings.Contains(err.Error(), "unknown flag: --"+old) {
				return false, badInputf("--%s is now %s (see sdp-perf --help)", old, now)
			}
		}
		return false, badInputf("%w (see sdp-perf --help)", err)
	case fs.help:
		return true, fs.printHelp(out)
	case fs.NArg() > 1:
		return false, badInputf("%q: unexpected argument (see sdp-perf --help)", fs.Arg(1))
	}
	*test = fs.Arg(0)
	return false, nil
}

// movedFlags says where flags of earlier versions went.
var movedFlags = map[string]string{
	"only":        "the name of a test: bw or lat",
	"size":        "-l",
	"connections": "-P",
	"duration":    "-t",
	"transports":  "--transport, for one of them",
	"rounds":      "gone: a run without a test has as many as its time (-t) allows",
	"max-time":    "-t",
	"listen":      "-s, with -B ADDRESS and -p PORT",
	"connect":     "-c HOST, with -p PORT",
}

// printHelp prints the help of one command, or that of the tool.
func (fs *flagSet) printHelp(out io.Writer) error {
	var b strings.Builder
	end := ""
	if fs.command == "" {
		b.WriteString(helpHead)
		for _, t := range tests {
			fmt.Fprintf(&b, "  %-8s %s\n", t[0], t[1])
		}
		end = helpEnd
	}
	for _, c := range commands() {
		if fs.command == c.name && !c.hidden {
			fmt.Fprintf(&b, "sdp-perf %s: %s\n\nUsage: sdp-perf %s\n", c.name, c.summary, c.synopsis)
		}
	}
	b.WriteString("\nFlags:\n" + fs.FlagUsagesWrapped(80) + end)
	_, err := io.WriteString(out, b.String())
	return err
}

const helpHead = `sdp-perf measures SDP beside loopback TCP and Unix sockets. Its flags are iperf3's.

Usage:
  sdp-perf                        all three between two processes of this machine
  sdp-perf TEST [flags]           one test between two processes of this machine
  sdp-perf -s [flags]             a server
  sdp-perf -c HOST [TEST] [flags] one test with that server (default bw)

Tests:
`

const helpEnd = `
Times are seconds, or have a unit: 300ms. Numbers may end in K, M, G or T: powers of
1024 for bytes, of 1000 for rates. SDP_FABRIC names the fabric, or else
/etc/ntbnet/fabric. Each run first checks every byte of some MiB both ways.

Exit status: 0; 1 when something failed; 2 for bad input, an address that cannot be
listened on or dialled among it; 130 when interrupted.
`

// names returns the names of all flags.
func (fs *flagSet) names() (names []string) {
	fs.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return names
}
