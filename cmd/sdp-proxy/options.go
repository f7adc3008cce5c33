package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/ntbnet/ntbnet/internal/flags"
	"github.com/ntbnet/ntbnet/internal/proxy"
	"github.com/spf13/pflag"
)

const usageHead = `sdp-proxy forwards connections between TCP, Unix sockets and SDP.

Usage: sdp-proxy --map LISTEN=TARGET [--map LISTEN=TARGET ...]

It listens on the left side and forwards each connection to the right side. A
side is one of
  tcp://HOST:PORT     TCP; an empty HOST listens on all addresses
  sdp://HOST:PORT     SDP, the fabric of SDP_FABRIC, /etc/ntbnet/fabric or this user's own
  unix:///PATH        Unix socket; unix://PATH is relative, unix://@NAME abstract
Port 0 on the left picks a free one, which the first line on stderr tells.

A map that leads back to itself is refused, also through other maps and through
other sdp-proxys of the fabric on this machine: the one that starts last is. A loop
through other programs ends at --max-connections.

Examples, a Redis server and its clients over SDP:
  sdp-proxy --map sdp://:7000=tcp://127.0.0.1:6379
  sdp-proxy --map tcp://127.0.0.1:6380=sdp://localhost:7000
  redis-cli -p 6380
A process that owns the links of a node, for the others of that node:
  SDP_FABRIC='ring:lab?node=2&nodes=5' sdp-proxy --own
Two services at once, one of them on a Unix socket:
  sdp-proxy --map unix:///tmp/db.sock=sdp://localhost:7001 --map tcp://:8080=sdp://localhost:7002

Flags:
`

const usageTail = `
Signals: SIGTERM or SIGINT stops listening and lets the connections end; a second
one cuts them. SIGUSR1 prints the counters. SIGHUP changes nothing.

Counters: "refused" are clients beyond --max-connections, "failed" those whose target
could not be reached, "aborted" those cut by a reset, another error or the proxy's end.

Exit status: 0 after a signal, also if connections were cut, which the last line tells;
1 if a listener failed; 2 if it could not start.
`

// options are the parsed command line.
type options struct {
	maps           []proxy.Map
	dialTimeout    time.Duration
	drainTimeout   time.Duration
	maxConnections int // per map; 0 for no limit
	users          proxy.Users
	own            bool
	quiet          bool
	stats          bool
}

// parseOptions parses the command line. The error is pflag.ErrHelp after it wrote
// the help or the version to stdout. Otherwise it is one line that says what to do.
func parseOptions(args []string, stdout io.Writer) (options, error) {
	var o options
	fs := pflag.NewFlagSet("sdp-proxy", pflag.ContinueOnError)
	fs.SetOutput(io.Discard) // run writes the one line
	fs.SortFlags = false
	specs := fs.StringArray("map", nil, "`LISTEN=TARGET` listens on the left, forwards to the right; may be repeated")
	fs.BoolVar(&o.own, "own", false, "own the links of this node of the fabric, for the node's other processes; needs no --map")
	fs.DurationVar(&o.dialTimeout, "dial-timeout", 10*time.Second, "give up on a target after this; 0 for no limit")
	fs.DurationVar(&o.drainTimeout, "drain-timeout", 30*time.Second, "after SIGTERM, cut what has not ended by then")
	fs.IntVar(&o.maxConnections, "max-connections", 4096, "`N` connections of a map may be open, further clients are reset; 0 for no limit")
	users := fs.StringSlice("allow-user", nil, "`USERS`, by names or numbers with commas between, may connect by sdp://, and nobody else of this machine, nor of other nodes")
	groups := fs.StringSlice("allow-group", nil, "members of `GROUPS` may connect, likewise; with --allow-user, both may")
	fs.BoolVar(&o.stats, "stats", false, "print the counters at the end")
	fs.BoolVar(&o.quiet, "quiet", false, "write only what went wrong")
	fs.Usage = func() {
		fmt.Fprint(stdout, usageHead, fs.FlagUsages(), usageTail)
	}
	if err := flags.Parse(fs, args, stdout); err != nil {
		return options{}, err
	}
	if fs.NArg() > 0 {
		return options{}, fmt.Errorf("unexpected %q; maps are given with --map LISTEN=TARGET", fs.Arg(0))
	}
	if len(*specs) == 0 && !o.own {
		return options{}, errors.New("nothing to do: give --map LISTEN=TARGET, as in --map tcp://127.0.0.1:6379=sdp://localhost:7000")
	}
	if o.dialTimeout < 0 {
		return options{}, fmt.Errorf("--dial-timeout %v: cannot be negative", o.dialTimeout)
	}
	if o.drainTimeout < 0 {
		return options{}, fmt.Errorf("--drain-timeout %v: cannot be negative", o.drainTimeout)
	}
	if o.maxConnections < 0 {
		return options{}, fmt.Errorf("--max-connections %d: cannot be negative", o.maxConnections)
	}
	var err error
	if o.users, err = proxy.ParseUsers(*users, *groups); err != nil {
		return options{}, err
	}
	if fs.Changed("allow-user") && len(*users) == 0 || fs.Changed("allow-group") && len(*groups) == 0 {
		return options{}, errors.New("--allow-user and --allow-group: want a name or number")
	}
	for _, spec := range *specs {
		m, err := proxy.ParseMap(spec)
		if err != nil {
			return options{}, err
		}
		o.maps = append(o.maps, m)
	}
	return o, nil
}
