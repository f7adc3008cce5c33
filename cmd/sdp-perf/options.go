package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

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
	{meter.Loaded, "round trips that begin at a set rate (-b, per second), timed since they were due"},
	{meter.Connect, "connect, request, response, close"},
	{sweepTest, "round trips by size, 1 B to 8 MiB, as NetPIPE's file has them"},
	{shmemTest, "put, get, atomics and barriers of package shmem, between -P processes"},
	{meter.Idle, "what idle connections cost: processor time and memory"},
}

// options are the flags of the tool. Those that iperf3 has mean the same.
type options struct {
	test      string
	transport string
	server    bool
	once      bool
	client    string
	bind      string
	port      int
	time      seconds
	bytes     number
	blocks    number
	length    number
	streams   int
	reverse   bool
	bidir     bool
	interval  seconds
	omit      seconds
	json      bool
	stream    bool
	logfile   string
	timeout   int // ms
	window    number
	format    string
	rate      number
	svg       string

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

func (o *options) register(fs *flagSet) {
	fs.BoolVarP(&o.server, "server", "s", false, "serve until interrupted: SDP and TCP on one port, if no --transport is given")
	fs.StringVarP(&o.client, "client", "c", "", "measure the server at `HOST`: localhost, node3, a machine (TCP), or a path (Unix socket)")
	fs.StringVar(&o.transport, "transport", "", "sdp, tcp or unix (default sdp)")
	fs.IntVarP(&o.port, "port", "p", defaultPort, "the server's port")
	fs.StringVarP(&o.bind, "bind", "B", "", "listen at this address, or `PATH` of a Unix socket")
	fs.VarP(&o.time, "time", "t", "seconds to measure (default 10)")
	fs.VarP(&o.bytes, "bytes", "n", "bytes to send, instead of a time")
	fs.VarP(&o.blocks, "blockcount", "k", "messages to send, instead of a time")
	fs.VarP(&o.length, "length", "l", "bytes of a message (default 128K in bw, else 64)")
	fs.IntVarP(&o.streams, "parallel", "P", defaultStreams, "connections at the same time (in idle 1000)")
	fs.BoolVarP(&o.reverse, "reverse", "R", false, "bw: the server sends")
	fs.BoolVar(&o.bidir, "bidir", false, "bw: both send, on connections of their own")
	fs.VarP(&o.rate, "bitrate", "b", "bw: bits per second of a connection, 10M or 10M/8 for bursts of 8 messages; loaded: operations per second (default 10K)")
	fs.VarP(&o.omit, "omit", "O", "seconds before those that are measured")
	fs.VarP(&o.window, "window", "w", "bytes of both buffers of a connection")
	fs.VarP(&o.interval, "interval", "i", "seconds between reports, 0 for none (default 1)")
	fs.StringVarP(&o.format, "format", "f", "", "unit of rates: k, m, g, t bits, or K, M, G, T bytes per second")
	fs.BoolVarP(&o.json, "json", "J", false, "print JSON, with iperf3's keys")
	fs.BoolVar(&o.stream, "json-stream", false, "print a line of JSON for each event")
	fs.StringVar(&o.svg, "svg", "", "draw a picture of the test into `FILE`")
	fs.StringVar(&o.logfile, "logfile", "", "append what is printed to `FILE` instead")
	fs.IntVar(&o.timeout, "connect-timeout", connectTimeout, "milliseconds to connect")
	fs.BoolVarP(&o.once, "one-off", "1", false, "the server ends after one run")
}

// check checks the flags, and fills in what depends on others.
func (o *options) check(fs *flagSet) error {
	given := func(names ...string) (n int) {
		for _, name := range names {
			if fs.Changed(name) {
				n++
			}
		}
		return n
	}
	if o.test != "" && !slices.ContainsFunc(tests, func(t [2]string) bool { return t[0] == o.test }) {
		return badInputf("unknown test %q: use %s (see sdp-perf --help)", o.test, strings.Join(testNames(), ", "))
	}
	unix := strings.Contains(o.client+o.bind, "/")
	switch {
	case o.server && o.client != "":
		return badInputf("-s and -c together: this process is one of the two")
	case o.client != "" && (o.bind != "" || o.once):
		return badInputf("-B and -1 are the server's")
	case o.server && o.test != "":
		return badInputf("-s %s: the client names the test", o.test)
	case o.transport != "" && !slices.Contains(meter.Transports, o.transport):
		return badInputf("--transport %s: use %s", o.transport, strings.Join(meter.Transports, ", "))
	case o.port < 0 || o.port > 65535:
		return badInputf("-p %d: use a number from 0 to 65535", o.port)
	case given("time", "bytes", "blockcount") > 1:
		return badInputf("-t, -n and -k: use one of them")
	case o.reverse && o.bidir:
		return badInputf("-R and --bidir: use one of them")
	case o.json && o.stream:
		return badInputf("-J and --json-stream: use one of them")
	case o.format != "" && (len(o.format) != 1 || !strings.Contains("kmgtKMGT", o.format)):
		return badInputf("-f %s: use k, m, g, t, K, M, G or T", o.format)
	case o.timeout < 1 || o.timeout > 3_600_000:
		return badInputf("--connect-timeout %d: use 1 to 3600000 milliseconds", o.timeout)
	case fs.Changed("time") && (o.time <= 0 || time.Duration(o.time) > meter.MaxTime):
		return badInputf("-t %s: use more than 0 and at most 86400 seconds", &o.time)
	case fs.Changed("interval") && o.interval != 0 && (time.Duration(o.interval) < time.Millisecond || time.Duration(o.interval) > meter.MaxTime):
		return badInputf("-i %s: use 0, or 0.001 to 86400 seconds", &o.interval)
	case unix && o.transport != "" && o.transport != "unix":
		return badInputf("--transport %s with a path: use unix", o.transport)
	case unix:
		o.transport = "unix"
	case o.server && o.transport == "unix":
		return badInputf("say where: -B PATH of the socket")
	case o.test == "" && o.client == "" && !o.server && given(fs.names()...) > given("time", "json", "svg", "logfile"):
		return badInputf("these flags need a test, such as: sdp-perf lat (see sdp-perf --help)")
	case o.client != "" && o.transport == "unix":
		return badInputf("-c %s: use the path of the socket", o.client)
	}
	if o.client != "" && o.test == "" {
		o.test = meter.Bandwidth
	}
	if o.test != "" && o.test != meter.Bandwidth && (o.reverse || o.bidir) {
		return badInputf("%s goes both ways anyway: leave out -R and --bidir", o.test)
	}
	if !fs.Changed("interval") {
		o.interval = seconds(time.Second)
	}
	if !o.server && o.transport == "" {
		o.transport = "sdp"
	}
	if o.test == meter.Idle && !fs.Changed("parallel") {
		o.streams = defaultIdle
	}
	return nil
}

func testNames() (names []string) {
	for _, t := range tests {
		names = append(names, t[0])
	}
	return names
}

// params returns what a run does.
func (o *options) params() (meter.Params, error) {
	p := meter.Params{
		Test: o.test, Streams: o.streams, Size: int(o.length.n), Omit: time.Duration(o.omit), Time: time.Duration(o.time),
		Bytes: uint64(o.bytes.n), Reverse: o.reverse, Bidir: o.bidir, Rate: o.rate.n, Burst: o.rate.burst, Window: int(o.window.n),
	}
	if p.Size == 0 {
		p.Size = 64
		if o.test == meter.Bandwidth {
			p.Size = 128 << 10
		}
	}
	if o.blocks.n > 0 {
		p.Bytes = uint64(min(o.blocks.n*float64(p.Size), 1<<62))
	}
	if p.Bytes == 0 && p.Time == 0 {
		p.Time = defaultTestTime
	}
	switch o.test {
	case meter.Loaded:
		if p.Rate == 0 {
			p.Rate = defaultLoad
		}
		p.Rate /= float64(max(p.Streams, 1))
	case meter.Idle:
		p.Size, p.Omit = 1, max(p.Omit, time.Second) // each connection is used once at first
		if p.Bytes > 0 {
			return p, badInputf("idle: use a time")
		}
	}
	if err := p.Check(); err != nil {
		return p, badInput{err}
	}
	return p, nil
}

// seconds is a flag's value: seconds, or a time with a unit.
type seconds time.Duration

// Type returns the name of the value in the help.
func (s *seconds) Type() string { return "N" }

// String returns the value in seconds, or nothing for the help's default.
func (s *seconds) String() string {
	if *s == 0 {
		return ""
	}
	return strconv.FormatFloat(time.Duration(*s).Seconds(), 'g', -1, 64)
}

// Set parses the value.
func (s *seconds) Set(text string) error {
	if v, err := strconv.ParseFloat(text, 64); err == nil && v >= 0 && v < 1e9 {
		*s = seconds(v * float64(time.Second))
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return fmt.Errorf("want seconds, as in 10 or 0.5, or a time with its unit, as in 300ms")
	}
	*s = seconds(d)
	return nil
}

// number is a flag's value. K, M, G and T are powers of 1024, or in a rate, which may have a burst
// behind a slash, of 1000.
type number struct {
	n     float64
	rate  bool
	burst int
}

// Type returns the name of the value in the help.
func (v *number) Type() string { return map[bool]string{false: "N", true: "RATE"}[v.rate] }

// String returns the default that the help shows: none.
func (v *number) String() string { return "" }

// Set parses the value.
func (v *number) Set(text string) (err error) {
	unit, step := 1.0, 1024.0
	if v.rate {
		step = 1000
		if rate, burst, ok := strings.Cut(text, "/"); ok {
			if v.burst, err = strconv.Atoi(burst); err != nil || v.burst < 1 || v.burst > 1000 {
				return fmt.Errorf("want bursts of 1 to 1000 messages")
			}
			text = rate
		}
	}
	if text != "" {
		if i := strings.IndexByte("KMGT", text[len(text)-1]&^0x20); i >= 0 {
			unit, text = math.Pow(step, float64(i+1)), text[:len(text)-1]
		}
	}
	n, err := strconv.ParseFloat(text, 64)
	if v.n = n * unit; err != nil || !(v.n >= 1 && v.n < 1<<62) {
		return fmt.Errorf("want 1 at least, as in 64, 128K or 10M")
	}
	return nil
}

// runTool runs what users of the tool ask for.
func runTool(ctx context.Context, args []string, out io.Writer) error {
	o := options{arguments: args, rate: number{rate: true}}
	fs := newFlagSet()
	o.register(fs)
	helped, err := fs.parseTest(args, out, &o.test)
	if helped || err != nil {
		return err
	}
	if err := o.check(fs); err != nil {
		return err
	}
	to, err := openOutput(o.logfile, out)
	if err != nil {
		return err
	}
	switch {
	case o.server:
		err = runServe(ctx, &o, to)
	case o.test == "":
		err = runDefault(ctx, &o, to)
	case o.test == shmemTest:
		err = runSHMEM(ctx, &o, to)
	case o.test == sweepTest:
		err = runSweep(ctx, &o, to)
	default:
		err = measureTest(ctx, &o, to)
	}
	if closed := to.close(); err == nil {
		err = closed
	}
	return err
}

// reporter returns one for a run.
func (o *options) reporter(to io.Writer, host string) *report.Reporter {
	r := &report.Reporter{W: to, Host: host, Port: strconv.Itoa(o.port), Version: programVersion(), Arguments: o.arguments}
	if o.format != "" {
		r.Unit = report.Format(o.format[0])
	}
	switch {
	case o.json:
		r.As = report.AsJSON
	case o.stream:
		r.As = report.AsStream
	}
	return r
}
