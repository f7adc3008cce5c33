package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"

	"github.com/ntbnet/ntbnet/internal/flags"
)

// flagSet is a pflag.FlagSet that returns mistakes as badInput.
type flagSet struct {
	*pflag.FlagSet
	help bool
}

func newFlagSet() *flagSet {
	fs := &flagSet{FlagSet: pflag.NewFlagSet("sdp-perf", pflag.ContinueOnError)}
	fs.SetOutput(io.Discard)
	fs.SortFlags = false
	fs.BoolVarP(&fs.help, "help", "h", false, "print this")
	return fs
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

// printHelp prints the help.
func (fs *flagSet) printHelp(out io.Writer) error {
	var b strings.Builder
	b.WriteString(helpHead)
	for _, t := range tests {
		fmt.Fprintf(&b, "  %-8s %s\n", t[0], t[1])
	}
	b.WriteString("\nFlags:\n" + fs.FlagUsagesWrapped(80) + helpEnd)
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
