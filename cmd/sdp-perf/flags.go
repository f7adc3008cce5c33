package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/ntbnet/ntbnet/internal/flags"
	"github.com/ntbnet/ntbnet/internal/perf/meter"
)

// parse parses the command line, with one test in it at most. It returns no flags after a help or a version.
func (o *options) parse(args []string, out io.Writer) (fs *pflag.FlagSet, err error) {
	fs = flags.New("sdp-perf", out, "", "")
	help := fs.BoolP("help", "h", false, "print this")
	o.register(fs)
	err = flags.Parse(fs, args, out)
	switch {
	case errors.Is(err, pflag.ErrHelp): // the version
		return nil, nil
	case err != nil:
		return nil, refusal(err)
	case *help:
		text := helpHead
		for _, t := range tests {
			text += fmt.Sprintf("  %-8s %s\n", t[0], t[1])
		}
		_, err := io.WriteString(out, text+"\nFlags:\n"+fs.FlagUsagesWrapped(80)+helpEnd)
		return nil, err
	case fs.NArg() > 1:
		return nil, badInputf("%q: unexpected argument (see sdp-perf --help)", fs.Arg(1))
	}
	o.Test = fs.Arg(0)
	return fs, o.check(fs)
}

const helpHead = `sdp-perf measures SDP beside loopback TCP and Unix sockets, with iperf3's flags.

Usage:
  sdp-perf                        all three between processes of this machine
  sdp-perf TEST [flags]           one test between two processes of this machine
  sdp-perf -s [flags]             a server
  sdp-perf -c HOST [TEST] [flags] one test with that server (default bw)

Tests:
`

const helpEnd = `
Times are seconds, or have a unit: 300ms. Numbers may end in K, M, G or T:
powers of 1024 for bytes, of 1000 for rates. SDP_FABRIC names the fabric, or
else /etc/ntbnet/fabric. Each run first checks every byte of some MiB both ways.

Exit status: 0; 1 when something failed; 2 for bad input, an address that cannot
be listened on or dialled among it; 130 when interrupted.
`

// seconds returns what parses seconds, or a time with a unit.
func seconds(to *time.Duration) func(text string) error {
	return func(text string) (err error) {
		if _, err := strconv.ParseFloat(text, 64); err == nil {
			text += "s"
		}
		if *to, err = time.ParseDuration(text); err != nil || *to < 0 || *to > meter.MaxTime {
			return errors.New("want seconds, as in 10 or 0.5, or a time with its unit, as in 300ms, at most a day")
		}
		return nil
	}
}

// number returns what parses a number. K, M, G and T are powers of step.
func number(step float64, set func(n float64)) func(text string) error {
	return func(text string) error {
		unit := 1.0
		if i := len(text) - 1; i >= 0 {
			if power := strings.IndexByte("KMGT", text[i]&^0x20); power >= 0 {
				unit, text = math.Pow(step, float64(power+1)), text[:i]
			}
		}
		n, err := strconv.ParseFloat(text, 64)
		if n *= unit; err != nil || !(n >= 1 && n < 1<<62) {
			return errors.New("want 1 at least, as in 64, 128K or 10M")
		}
		set(n)
		return nil
	}
}

// size returns what parses a number of bytes.
func size(to *int) func(text string) error {
	return number(1024, func(n float64) { *to = int(min(n, 1<<40)) })
}

// rate returns what parses a rate, which may have a burst behind a slash.
func rate(p *meter.Params) func(text string) error {
	return func(text string) (err error) {
		text, burst, ok := strings.Cut(text, "/")
		if ok {
			if p.Burst, err = strconv.Atoi(burst); err != nil || p.Burst < 1 || p.Burst > 1000 {
				return errors.New("want bursts of 1 to 1000 messages")
			}
		}
		return number(1000, func(n float64) { p.Rate = n })(text)
	}
}
