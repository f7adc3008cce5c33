package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/ntbnet/ntbnet/internal/flags"
	"github.com/ntbnet/ntbnet/internal/perf/meter"
	"github.com/ntbnet/ntbnet/internal/perf/report"
)

// Tests besides those of package meter.
const (
	sweepTest = "sweep"
	shmemTest = "shmem"
)

// tests are all of them, with what they measure.
var tests = [][2]string{
	{meter.Bandwidth, "one way, as fast as possible, or at a rate (-b)"},
	{meter.Latency, "round trips, one after the other"},
	{meter.Loaded, "round trips that begin at a set rate (-b, per second), timed since\n           they were due; the client polls the clock, and so takes a processor"},
	{meter.Connect, "connect, request, response, close"},
	{sweepTest, "round trips by size, 1 B to 8 MiB, as NetPIPE's file has them"},
	{shmemTest, "put, get, atomics and barriers of package shmem, between -P processes"},
	{meter.Idle, "what idle connections cost: processor time and memory"},
}

// options are the flags of the tool. Those that iperf3 has mean the same.
type options struct {
	meter.Params
	transport string
	server    bool
	once      bool
	daemon    bool
	client    string
	bind      string
	port      int
	blocks    float64
	interval  time.Duration
	json      bool
	stream    bool
	logfile   string
	timeout   int // ms
	format    string
	svg       string
	family    string // of IP, "4" or "6"
	verbose   bool
	stamps    string // before each line
	cport     int
	trace     io.Writer // where -d prints, or nil

	arguments []string
}

const (
	defaultPort     = 5201 // iperf3's
	defaultStreams  = 1
	defaultLoad     = 10_000 // operations per second
	defaultIdle     = 1000   // connections
	verifyBytes     = 8 << 20
	connectTimeout  = 10_000 // ms
	defaultTestTime = 10 * time.Second
)

func (o *options) register(fs *pflag.FlagSet) {
	o.interval = time.Second
	fs.BoolVarP(&o.server, "server", "s", false, "serve until interrupted: SDP and TCP on one port, if no --transport is given")
	fs.StringVarP(&o.client, "client", "c", "", "measure the server at `HOST`, or HOST:PORT: localhost, node3, a machine (TCP), or a path (Unix socket)")
	fs.StringVar(&o.transport, "transport", "", "sdp, tcp or unix (default sdp)")
	fs.IntVarP(&o.port, "port", "p", defaultPort, "the server's port")
	fs.StringVarP(&o.bind, "bind", "B", "", "listen at this address, or `PATH` of a Unix socket")
	fs.FuncP("time", "t", "measure for `N` seconds (default 10)", seconds(&o.Time))
	fs.FuncP("bytes", "n", "send `N` bytes, instead of a time", number(1024, func(n float64) { o.Bytes = uint64(n) }))
	fs.FuncP("blockcount", "k", "send `N` messages, instead of a time", number(1024, func(n float64) { o.blocks = n }))
	fs.FuncP("length", "l", "messages have `N` bytes (default 128K in bw, else 64)", size(&o.Size))
	fs.IntVarP(&o.Streams, "parallel", "P", defaultStreams, "connections at the same time (in idle 1000)")
	fs.BoolVarP(&o.Reverse, "reverse", "R", false, "bw: the server sends")
	fs.BoolVar(&o.Bidir, "bidir", false, "bw: both send, on connections of their own")
	fs.FuncP("bitrate", "b", "`RATE`, in bw bits per second of a connection (10M, or 10M/8 for bursts of 8 messages), in loaded operations per second (default 10K)", rate(&o.Params))
	fs.FuncP("omit", "O", "run for `N` seconds before those that are measured", seconds(&o.Omit))
	fs.FuncP("window", "w", "both buffers of a connection have `N` bytes", size(&o.Window))
	fs.FuncP("interval", "i", "report each `N` seconds, 0 for never (default 1)", seconds(&o.interval))
	fs.StringVarP(&o.format, "format", "f", "", "unit of rates: k, m, g, t bits, or K, M, G, T bytes per second")
	fs.BoolVarP(&o.json, "json", "J", false, "print JSON, with iperf3's keys")
	fs.BoolVar(&o.stream, "json-stream", false, "print a line of JSON for each event")
	fs.StringVar(&o.svg, "svg", "", "draw a picture of the test into `FILE`")
	fs.StringVar(&o.logfile, "logfile", "", "append what is printed to `FILE` instead")
	fs.IntVar(&o.timeout, "connect-timeout", connectTimeout, "milliseconds to connect")
	fs.BoolFuncP("version4", "4", "by TCP, IPv4 alone", func(string) error { o.family = "4"; return nil })
	fs.BoolFuncP("version6", "6", "by TCP, IPv6 alone", func(string) error { o.family = "6"; return nil })
	fs.BoolVarP(&o.verbose, "verbose", "V", false, "print the version and the machine too")
	fs.StringVar(&o.stamps, "timestamps", "", "begin each line with the time, by a `FORMAT` of strftime")
	fs.Lookup("timestamps").NoOptDefVal = "%c "
	fs.IntVar(&o.cport, "cport", 0, "the first stream of TCP comes from this port, and one more for each other one")
	fs.BoolVar(&o.Output, "get-server-output", false, "print what the server prints, too")
	fs.BoolFuncP("debug", "d", "print what is said on control connections, to the standard error", func(string) error { o.trace = os.Stderr; return nil })
	fs.BoolVarP(&o.daemon, "daemon", "D", false, "the server runs in the background")
	fs.BoolVarP(&o.once, "one-off", "1", false, "the server ends after one client")
}

// check checks the flags, and fills in what depends on others.
func (o *options) check(fs *pflag.FlagSet) error {
	given := func(names ...string) (n int) {
		for _, name := range names {
			if fs.Changed(name) {
				n++
			}
		}
		return n
	}
	var names []string
	for _, t := range tests {
		names = append(names, t[0])
	}
	unix := strings.Contains(o.client+o.bind, "/")
	if host, text, err := net.SplitHostPort(o.client); err == nil && !unix {
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil || fs.Changed("port") && o.port != int(port) {
			return badInputf("-c %s: use one port, 0 to 65535, there or by -p", o.client)
		}
		o.client, o.port = host, int(port)
	}
	switch {
	case o.Test != "" && !slices.Contains(names, o.Test):
		return badInputf("unknown test %q: use %s (see sdp-perf --help)", o.Test, strings.Join(names, ", "))
	case o.server && o.client != "":
		return badInputf("-s and -c together: this process is one of the two")
	case o.client != "" && (o.bind != "" || o.once), o.daemon && !o.server:
		return badInputf("-B, -1 and -D are the server's")
	case o.server && o.Test != "":
		return badInputf("-s %s: the client names the test", o.Test)
	case o.transport != "" && !slices.Contains(meter.Transports, o.transport):
		return badInputf("--transport %s: use %s", o.transport, strings.Join(meter.Transports, ", "))
	case o.port < 0 || o.port > 65535:
		return badInputf("-p %d: use a number from 0 to 65535", o.port)
	case given("time", "bytes", "blockcount") > 1:
		return badInputf("-t, -n and -k: use one of them")
	case o.Reverse && o.Bidir:
		return badInputf("-R and --bidir: use one of them")
	case o.stamps != "" && (o.json || o.stream):
		return badInputf("--timestamps and JSON: that has times, use one of them")
	case o.json && o.stream:
		return badInputf("-J and --json-stream: use one of them")
	case o.format != "" && (len(o.format) != 1 || !strings.Contains("kmgtKMGT", o.format)):
		return badInputf("-f %s: use k, m, g, t, K, M, G or T", o.format)
	case o.timeout < 1 || o.timeout > 3_600_000:
		return badInputf("--connect-timeout %d: use 1 to 3600000 milliseconds", o.timeout)
	case fs.Changed("time") && o.Time == 0:
		return badInputf("-t 0: use more seconds")
	case o.interval > 0 && o.interval < time.Millisecond:
		return badInputf("-i %v: use 0 or 0.001 seconds at least", o.interval)
	case unix && o.transport != "" && o.transport != "unix":
		return badInputf("--transport %s with a path: use unix", o.transport)
	case unix:
		o.transport = "unix"
	case o.server && o.transport == "unix":
		return badInputf("say where: -B PATH of the socket")
	case o.Test == "" && o.client == "" && !o.server && fs.NFlag() > given("time", "json", "svg", "logfile"):
		return badInputf("these flags need a test, such as: sdp-perf lat (see sdp-perf --help)")
	case o.Output && o.client == "":
		return badInputf("--get-server-output is for a client of a server (-c)")
	case o.client != "" && o.transport == "unix":
		return badInputf("-c %s: use the path of the socket", o.client)
	}
	if o.client != "" && o.Test == "" {
		o.Test = meter.Bandwidth
	}
	if o.cport != 0 && (o.client == "" || o.transport != "tcp" || o.Test == meter.Connect || o.cport < 0 || o.cport+2*o.Streams > 1<<16) {
		return badInputf("--cport %d: use a port with room for all streams, --transport tcp and -c, and another test than crr", o.cport)
	}
	if o.Test != "" && o.Test != meter.Bandwidth && (o.Reverse || o.Bidir) {
		return badInputf("%s goes both ways anyway: leave out -R and --bidir", o.Test)
	}
	if !o.server && o.transport == "" {
		o.transport = "sdp"
	}
	if o.transport == "sdp" || o.transport == "unix" {
		o.family = "" // which is TCP's
	}
	return nil
}

// complete fills in what a run needs and no flag has said.
func (o *options) complete(fs *pflag.FlagSet) error {
	switch {
	case o.Size == 0 && o.Test == meter.Bandwidth:
		o.Size = 128 << 10
	case o.Size == 0:
		o.Size = 64
	}
	if o.blocks > 0 {
		o.Bytes = uint64(min(o.blocks*float64(o.Size), 1<<62))
	}
	if o.Bytes == 0 {
		o.Time = cmp.Or(o.Time, defaultTestTime)
	}
	switch o.Test {
	case meter.Loaded:
		o.Rate = cmp.Or(o.Rate, defaultLoad) / float64(max(o.Streams, 1))
	case meter.Idle:
		if o.Bytes > 0 {
			return badInputf("idle: use a time")
		}
		if !fs.Changed("parallel") {
			o.Streams = defaultIdle
		}
		o.Size, o.Omit = 1, max(o.Omit, time.Second) // each connection is used once at first
	}
	if err := o.Check(); err != nil {
		return badInput{err}
	}
	return nil
}

// runTool runs what users of the tool ask for.
func runTool(ctx context.Context, args []string, out io.Writer) error {
	o := options{arguments: args}
	fs, err := o.parse(args, out)
	if fs == nil || err != nil {
		return err
	}
	run := o.measure
	switch {
	case o.server:
		run = o.serve
	case o.Test == "":
		run = o.compare
	case o.Test == shmemTest:
		run = o.measureSHMEM
	case o.Test == sweepTest:
		run = o.sweep
	default:
		if err := o.complete(fs); err != nil {
			return err
		}
	}
	if _, err := os.Stat(filepath.Dir(o.svg)); err != nil { // which is . for ""
		return badInputf("--svg: %w", err)
	}
	if o.logfile == "" {
		return run(ctx, o.stamped(out))
	}
	f, err := os.OpenFile(o.logfile, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return badInputf("--logfile: %w", err)
	}
	return cmp.Or(run(ctx, o.stamped(f)), f.Close())
}

func (o *options) head() report.Head {
	return report.NewHead(flags.Version("sdp-perf"), o.arguments)
}

// reporter returns one for a run.
func (o *options) reporter(to io.Writer, host string) *report.Reporter {
	r := &report.Reporter{Head: o.head(), W: to, JSON: o.json, Stream: o.stream, Verbose: o.verbose, Host: host, Port: o.port}
	if o.format != "" {
		r.Unit = report.Format(o.format[0])
	}
	return r
}

// print prints a report as text or JSON, and draws its picture. err is what ended it early; it is
// returned, or that of a write.
func (o *options) print(out io.Writer, rep any, text func(io.Writer) error, picture report.Chart, err error) error {
	var written error
	if o.json || o.stream {
		written = report.WriteJSON(out, rep)
	} else {
		written = text(out)
	}
	if written != nil {
		_ = text(os.Stderr)
		written = fmt.Errorf("write the result: %w", written)
	}
	return cmp.Or(err, written, o.draw(picture))
}

// draw writes the picture of --svg.
func (o *options) draw(c report.Chart) error {
	if o.svg == "" {
		return nil
	}
	if err := os.WriteFile(o.svg, c.SVG(), 0o666); err != nil {
		if info, statErr := os.Stat(o.svg); statErr == nil && info.Mode().IsRegular() {
			_ = os.Remove(o.svg) // part of a picture is none
		}
		return fmt.Errorf("--svg: %w", err)
	}
	return nil
}

// onTerminal returns whether somebody looks at the standard error.
var onTerminal = sync.OnceValue(func() bool {
	info, err := os.Stderr.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
})

// progress shows a line in place of the one before, on a terminal only.
func progress(what string) {
	if onTerminal() {
		fmt.Fprint(os.Stderr, "\r\x1b[K"+what)
	}
}
