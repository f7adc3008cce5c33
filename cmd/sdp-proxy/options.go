package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/ntbnet/ntbnet/internal/flags"
	"github.com/ntbnet/ntbnet/internal/proxy"
	"github.com/spf13/pflag"
)

const usageHead = `sdp-proxy forwards connections between TCP, Unix sockets and SDP.

Usage: sdp-proxy --map LISTEN=TARGET [--map LISTEN=TARGET ...] | --config FILE
       sdp-proxy --transparent --map LISTEN

It listens on the left side and forwards each connection to the right side. A
side is one of
  tcp://HOST:PORT     TCP; an empty HOST listens on all addresses
  sdp://HOST:PORT     SDP: the fabric of SDP_FABRIC, of /etc/ntbnet/fabric, or
                      this user's own
  tcp+sdp://HOST:PORT both, left only: TCP at HOST, SDP at the same port
  unix:///PATH        Unix socket; unix://PATH is relative, unix://@NAME
                      abstract
Port 0 on the left picks a free one, which the first line on stderr tells.
With --transparent a map is LISTEN alone, at tcp://. What rules of nftables
redirect there goes on to where its client wanted to go, if that is an address
of the fabric's hosts.

A map that leads back to itself is refused, also through other maps. A loop
through other processes ends at --max-connections.

Examples, a Redis server and its clients over SDP:
  sdp-proxy --map sdp://:7000=tcp://127.0.0.1:6379
  sdp-proxy --map tcp://127.0.0.1:6380=sdp://localhost:7000
  redis-cli -p 6380
A process that owns the links of a node, for the others of that node:
  SDP_FABRIC='ring:lab?node=2&nodes=5' sdp-proxy --own
Two services at once, one of them on a Unix socket:
  sdp-proxy --map unix:///tmp/db.sock=sdp://localhost:7001 \
            --map tcp://:8080=sdp://localhost:7002

A file has the maps of a service, in YAML: keys maps, with listen and target or
targets in each; defaults, for all of them; and the flags below by their names.
  sdp-proxy check FILE        says whether it is right, and where not
  sdp-proxy status ADDRESS    shows the maps and connections of a proxy, which
                              has --metrics ADDRESS

Flags:
`

const usageTail = `
Signals: SIGTERM or SIGINT stops listening and lets the connections end; a
second one cuts them. SIGUSR1 prints the counters. SIGHUP reads the file again:
new and changed maps take effect, and a file with an error changes nothing. A
service manager that started it by sd_notify's protocol, as systemd does, is
told all that.

Each connection is logged when it is over, and counted: "refused" are clients
that were turned away, as beyond --max-connections, "failed" those of which no
target could be reached, "aborted" those cut by a reset, another error or the
proxy. A client that closes without a byte either way is a check: it has no
line, and counts apart.

Exit status: 0 after a signal, also if connections were cut, which the last line
tells; 1 if a listener failed; 2 if it could not start.
`

const checkHead = `sdp-proxy check reads a file as sdp-proxy --config does, and serves nothing.

Usage: sdp-proxy check [--memory SIZE] FILE

It prints how many maps there are, or the first error, with its line and column
or with the map that cannot be in this fabric. It joins no fabric. With --memory
it also prints which max-connections keeps a proxy of these maps within so much
memory, if all that is sent by SDP stays unread.

Flags:
`

// options are the parsed command line.
type options struct {
	config *proxy.Config
	file   string // that config is from, or ""
	check  bool   // it is to be checked alone
	memory int    // for which that computes max-connections, or 0
}

// load reads the file, if there is one.
func (o *options) load() (err error) {
	if o.file != "" {
		o.config, err = proxy.ReadFile(o.file)
	}
	return err
}

// parseOptions parses the command line. The error is pflag.ErrHelp after it wrote
// the help or the version to stdout. Otherwise it is one line that says what to do.
func parseOptions(args []string, stdout io.Writer) (*options, error) {
	if len(args) > 0 && args[0] == "check" {
		return parseCheck(args[1:], stdout)
	}
	c := proxy.NewConfig()
	o := &options{config: c}
	fs := flags.New("sdp-proxy", stdout, usageHead, usageTail)
	specs := fs.StringArray("map", nil, "`LISTEN=TARGET` listens on the left, forwards to the right; may be repeated")
	fs.StringVar(&o.file, "config", "", "read maps and options from `FILE`, in place of all other flags")
	addFlags(fs, proxy.MapOptions, &c.Defaults)
	addFlags(fs, proxy.Options, c)
	if err := flags.Parse(fs, args, stdout); err != nil {
		return nil, err
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("unexpected %q; maps are given with --map LISTEN=TARGET", fs.Arg(0))
	}
	if fs.Changed("config") {
		var err error
		fs.Visit(func(f *pflag.Flag) {
			if f.Name != "config" {
				err = fmt.Errorf("--%s: write it into %s, which has all options", f.Name, o.file)
			}
		})
		if err == nil {
			err = o.load()
		}
		return o, err
	}
	for _, spec := range *specs {
		m, err := c.Defaults.ParseMap(spec)
		if err != nil {
			return nil, err
		}
		c.Maps = append(c.Maps, m)
	}
	if len(c.Maps) == 0 && !c.Own {
		return nil, errors.New("nothing to do: give --map LISTEN=TARGET, as in --map tcp://127.0.0.1:6379=sdp://localhost:7000, or --config FILE")
	}
	return o, c.Check()
}

func parseCheck(args []string, stdout io.Writer) (*options, error) {
	var memory flags.Size
	fs := flags.New("sdp-proxy check", stdout, checkHead, "")
	fs.Var(&memory, "memory", "print the max-connections for `SIZE` of memory, such as 48M")
	if err := flags.Parse(fs, args, stdout); err != nil {
		return nil, err
	}
	if fs.NArg() != 1 {
		return nil, errors.New("check: want one file, as in sdp-proxy check /etc/ntbnet/proxy.yaml")
	}
	o := &options{file: fs.Arg(0), check: true, memory: int(memory)}
	return o, o.load()
}

// addFlags adds a flag for each option of to.
func addFlags[T any](fs *pflag.FlagSet, options []proxy.Option[T], to *T) {
	for _, o := range options {
		f := fs.VarPF(&optionFlag[T]{Option: o, to: to, text: o.Default}, o.Name, "", o.Usage)
		if o.Bool {
			f.NoOptDefVal = "true"
		}
	}
}

// optionFlag is an option as a pflag.Value.
type optionFlag[T any] struct {
	proxy.Option[T]
	to     *T
	text   string
	values []string // of a list
}

// Type returns "bool" for a flag without a value. Others have a name that package flags does not know, so that the
// message is that of the option.
func (f *optionFlag[T]) Type() string {
	if f.Bool {
		return "bool"
	}
	return "option"
}

func (f *optionFlag[T]) String() string { return f.text }

func (f *optionFlag[T]) Set(text string) error {
	values := []string{text}
	if f.List {
		f.values = append(f.values, strings.Split(text, ",")...)
		values = f.values
	}
	if err := f.Option.Set(f.to, values...); err != nil {
		return err
	}
	f.text = text
	return nil
}
