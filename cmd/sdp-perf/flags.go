package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/ntbnet/ntbnet/internal/flags"
	"github.com/ntbnet/ntbnet/internal/perf"
)

// The default run has 5 rounds of 2 tests on 3 transports. With warm-up and samples
// it takes about 12 seconds.
const (
	defaultRounds        = 5
	defaultDuration      = 300 * time.Millisecond
	defaultRoundTripSize = 64
	defaultOneWaySize    = 64 << 10
	verifyBytes          = 32 << 20

	// maxBuffers bounds the message buffers of all connections together. Each of
	// the two processes has up to two for every connection.
	maxBuffers = 256 << 20
)

// Default limits of a command's time, several times what it takes on an idle
// machine.
const (
	defaultMaxTime = time.Minute // of compare and client
	limitsMaxTime  = 2 * time.Minute
	ringMaxTime    = 3 * time.Minute
	shmemMaxTime   = 3 * time.Minute
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

// printHelp prints the help of one command, or with no command that of all.
func (fs *flagSet) printHelp(out io.Writer) error {
	var b strings.Builder
	end := ""
	if fs.command == "" {
		b.WriteString("sdp-perf measures SDP against loopback TCP and Unix sockets.\n\n")
		end = helpEnd
	}
	for _, c := range commands() {
		switch {
		case c.hidden:
		case fs.command == "":
			fmt.Fprintf(&b, "  %-48s %s\n", "sdp-perf "+c.synopsis, c.summary)
		case fs.command == c.name:
			fmt.Fprintf(&b, "sdp-perf %s: %s\n\nUsage: sdp-perf %s\n", c.name, c.summary, c.synopsis)
		}
	}
	if fs.command == "" || fs.Lookup("listen") != nil || fs.Lookup("connect") != nil {
		b.WriteString("\nNET://ADDRESS is sdp://localhost:7000, tcp://127.0.0.1:7000 or unix:///path.\n")
	}
	b.WriteString("\nFlags:\n" + fs.FlagUsages() + end)
	_, err := io.WriteString(out, b.String())
	return err
}

const helpEnd = `
"sdp-perf COMMAND --help" has the flags of a command. SDP_FABRIC names the fabric,
or else /etc/ntbnet/fabric; crossover, ring and shmem make one of their own.

Exit status: 0; 1 when something failed; 2 for bad input, an address that cannot be
listened on or dialled among it; 130 when interrupted.
`

// measureFlags are the flags of every command that measures.
type measureFlags struct {
	size        size
	rounds      int
	duration    time.Duration
	maxTime     maxTime
	connections int
	only        string
	json        bool
	cpuProfile  string
}

func (m *measureFlags) register(fs *flagSet) {
	fs.Var(&m.size, "size", "bytes of a message, e.g. 512 or 64K (default 64 for round trips, 64K one way)")
	fs.IntVar(&m.rounds, "rounds", defaultRounds, "how often each transport is measured, 1 to 1000")
	fs.DurationVar(&m.duration, "duration", defaultDuration, "of one test on one transport in one round, 1ms to 1m")
	m.maxTime.register(fs, defaultMaxTime)
	fs.IntVar(&m.connections, "connections", 1, "connections at work at the same time, 1 to 1000")
	fs.StringVar(&m.only, "only", "", "latency or throughput (default both)")
	fs.BoolVar(&m.json, "json", false, "print the result as JSON")
	fs.StringVar(&m.cpuProfile, "cpuprofile", "", "write a CPU profile of the measuring process to `FILE`")
}

// plan checks the flags. The caller adds the targets and how to dial them.
func (m *measureFlags) plan() (perf.Plan, error) {
	switch {
	case m.rounds < 1 || m.rounds > 1000:
		return perf.Plan{}, badInputf("--rounds %d: use a number from 1 to 1000", m.rounds)
	case m.duration < time.Millisecond || m.duration > time.Minute:
		return perf.Plan{}, badInputf("--duration %v: use a time from 1ms to 1m", m.duration)
	case m.connections < 1 || m.connections > 1000:
		return perf.Plan{}, badInputf("--connections %d: use a number from 1 to 1000", m.connections)
	}
	if err := m.maxTime.check(); err != nil {
		return perf.Plan{}, err
	}
	p := perf.Plan{
		RoundTripSize: defaultRoundTripSize,
		OneWaySize:    defaultOneWaySize,
		Rounds:        m.rounds,
		Connections:   m.connections,
		Duration:      m.duration,
		VerifyBytes:   verifyBytes,
	}
	if m.size > 0 {
		p.RoundTripSize, p.OneWaySize = int(m.size), int(m.size)
	}
	if m.connections*max(p.RoundTripSize, p.OneWaySize) > maxBuffers {
		return perf.Plan{}, badInputf("--connections %d with --size %s: use fewer or smaller, %s together",
			m.connections, perf.SizeText(int(m.size)), perf.SizeText(maxBuffers))
	}
	switch m.only {
	case "":
	case "latency":
		p.OneWaySize = 0
	case "throughput":
		p.RoundTripSize = 0
	default:
		return perf.Plan{}, badInputf("--only %s: use latency or throughput", m.only)
	}
	return p, nil
}

// checkTransports checks the value of --transports.
func checkTransports(names []string) error {
	if len(names) == 0 {
		return badInputf("--transports: name at least one of %s", strings.Join(perf.Networks, ", "))
	}
	for i, n := range names {
		if !slices.Contains(perf.Networks, n) {
			return badInputf("--transports: unknown transport %q: use %s", n, strings.Join(perf.Networks, ", "))
		}
		if slices.Contains(names[:i], n) {
			return badInputf("--transports: %s is there twice", n)
		}
	}
	return nil
}

// endpointFlag checks the value of --listen and --connect.
func endpointFlag(flag, value string) (perf.Endpoint, error) {
	if value == "" {
		return perf.Endpoint{}, badInputf("say where: --%s sdp://localhost:7000 (see sdp-perf --help)", flag)
	}
	e, err := perf.ParseEndpoint(value)
	if err != nil {
		return e, badInputf("--%s %w", flag, err)
	}
	return e, nil
}

// size is a flag's value in bytes: a number, with K or M for binary multiples. 0
// means that it was not given.
type size int

// String returns the default that the help shows: none.
func (s *size) String() string { return "" }

// Type returns the name of the value in the help.
func (s *size) Type() string { return "SIZE" }

// Set parses the value.
func (s *size) Set(text string) error {
	digits, unit := text, 1
	for suffix, u := range map[string]int{"K": 1 << 10, "KiB": 1 << 10, "M": 1 << 20, "MiB": 1 << 20} {
		if d, ok := strings.CutSuffix(text, suffix); ok {
			digits, unit = d, u
		}
	}
	n, err := strconv.Atoi(digits)
	if err != nil || n < 1 || n > perf.MaxSize/unit {
		return fmt.Errorf("use 1 to %dM bytes, e.g. 512 or 64K", perf.MaxSize>>20)
	}
	*s = size(n * unit)
	return nil
}
