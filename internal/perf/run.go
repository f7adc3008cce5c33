package perf

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"
)

// slack is how much longer than planned a step may take before Run gives up.
const slack = 60 * time.Second

// Plan is what Run does.
type Plan struct {
	// Targets are the servers to measure, at most one of each transport.
	Targets []Endpoint
	// RoundTripSize and OneWaySize are the bytes of a message, 1 to MaxSize.
	// 0 leaves the test out.
	RoundTripSize, OneWaySize int
	// Rounds is how often every transport is measured, at least 1.
	Rounds int
	// Connections is how many connections work at once, at least 1.
	Connections int
	// Duration is how long one test of one transport is measured in one round.
	// Warm-up and samples take a third of it on top.
	Duration time.Duration
	// Budget, if not nil, limits the time of Run by leaving rounds out.
	Budget *Budget
	// VerifyBytes is how much is sent each way on each transport in the verifying
	// pass. Each connection carries its part, rounded up to a KiB.
	VerifyBytes uint64
	// Dial opens a connection.
	Dial func(context.Context, Endpoint) (net.Conn, error)
	// Progress, if not nil, is called with a description of what begins. It is
	// never called during a measurement.
	Progress func(what string)
}

// target is a transport that is being measured.
type target struct {
	Endpoint
	clients []*client
	tests   map[Test]*series
}

// Run connects to every target, verifies, measures and reports. All connections are
// closed when it returns. An error names the transport and what was being done. If
// ctx ended, the error wraps the cause.
func Run(ctx context.Context, p Plan) (*Report, error) {
	var targets []*target
	defer func() {
		for _, t := range targets {
			closeAll(t.clients)
		}
	}()
	for _, e := range p.Targets {
		p.progress("connecting: " + e.Network)
		t := &target{Endpoint: e, tests: make(map[Test]*series)}
		targets = append(targets, t)
		if err := t.connect(ctx, p, maxSamples); err != nil {
			return nil, fmt.Errorf("%s: %w", e.Network, err)
		}
	}
	verified, err := verifyAll(ctx, p, targets)
	if err != nil {
		return nil, err
	}
	done := 0
	for round := range p.Budget.Rounds(p.Rounds, 1) {
		for _, test := range p.tests() {
			if err := measureRound(ctx, p, test, round, targets); err != nil {
				return nil, err
			}
		}
		done++
	}
	return p.report(targets, verified, done), nil
}

func (p *Plan) progress(what string) {
	if p.Progress != nil {
		p.Progress(what)
	}
}

func (p *Plan) tests() []Test {
	var tests []Test
	for _, t := range []Test{RoundTrip, OneWay} {
		if p.size(t) > 0 {
			tests = append(tests, t)
		}
	}
	return tests
}

func (p *Plan) size(t Test) int {
	if t == RoundTrip {
		return p.RoundTripSize
	}
	return p.OneWaySize
}

// connect opens the connections of a target and checks that they use its transport.
// Otherwise a figure of TCP might appear under the name of SDP. Together they have
// room for samples single round trips.
func (t *target) connect(ctx context.Context, p Plan, samples int) error {
	for range p.Connections {
		conn, err := p.Dial(ctx, t.Endpoint)
		if err != nil {
			return err
		}
		c := newClient(conn, max(p.RoundTripSize, p.OneWaySize), samples/p.Connections)
		t.clients = append(t.clients, c)
		if got := conn.RemoteAddr().Network(); got != t.Network {
			return fmt.Errorf("the connection goes by %s", got)
		}
	}
	return t.guard(ctx, 0, func() error {
		for _, c := range t.clients {
			if err := c.hello(); err != nil {
				return err
			}
		}
		return nil
	})
}

func verifyAll(ctx context.Context, p Plan, targets []*target) (Verified, error) {
	each := (p.VerifyBytes/uint64(p.Connections) + 1023) &^ 1023
	v := Verified{BytesEachWay: each * uint64(p.Connections)}
	for _, t := range targets {
		p.progress("verifying: " + t.Network)
		err := t.guard(ctx, 0, func() error { return verifyClients(t.clients, each) })
		if err != nil {
			return Verified{}, fmt.Errorf("%s: verifying: %w", t.Network, err)
		}
		v.Transports = append(v.Transports, t.Network)
	}
	return v, nil
}

// verifyClients has every connection carry data of its own at the same time, so
// that data that comes out of a wrong connection is found.
func verifyClients(clients []*client, bytes uint64) error {
	seed := rand.Uint64()
	errs := make(chan error, len(clients))
	for i, c := range clients {
		go func() {
			err := c.verify(seed+uint64(i), bytes)
			if err != nil {
				closeAll(clients)
			}
			errs <- err
		}()
	}
	var failed error
	for range clients {
		failed = firstCause(failed, <-errs)
	}
	if failed != nil {
		return fmt.Errorf("%w (seed %d)", failed, seed)
	}
	return nil
}

// measureRound measures one test on every target. In each round it begins with
// another one.
func measureRound(ctx context.Context, p Plan, test Test, round int, targets []*target) error {
	for i := range targets {
		t := targets[(round+i)%len(targets)]
		what := fmt.Sprintf("%s, %s", test, SizeText(p.size(test)))
		p.progress(fmt.Sprintf("round %d of %d: %s: %s", round+1, p.Rounds, what, t.Network))
		if t.tests[test] == nil {
			t.tests[test] = &series{transport: t.Network}
		}
		err := t.guard(ctx, 2*p.Duration, func() error { return t.measure(p, test) })
		if err != nil {
			return fmt.Errorf("%s: %s: %w", t.Network, what, err)
		}
	}
	return nil
}

func (t *target) measure(p Plan, test Test) error {
	value, err := slice(t.clients, test, p.size(test), p.Duration)
	if err != nil {
		return err
	}
	s := t.tests[test]
	s.rounds = append(s.rounds, value)
	if test == RoundTrip {
		for _, c := range t.clients {
			s.samples = append(s.samples, c.samples...)
		}
	}
	return nil
}

// guard runs f, which uses the target's connections. It closes them when ctx ends,
// or when f takes longer than planned plus slack. So a transport that hangs is
// reported.
func (t *target) guard(ctx context.Context, planned time.Duration, f func() error) error {
	limit := planned + slack
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no end after %v: it hangs", limit))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { closeAll(t.clients) })
	defer stop()
	err := f()
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func (p *Plan) report(targets []*target, v Verified, rounds int) *Report {
	r := &Report{
		Host:        ThisHost(),
		Rounds:      rounds,
		Cut:         p.Budget.Cut(),
		SliceMS:     float64(p.Duration) / float64(time.Millisecond),
		Connections: p.Connections,
		Verified:    v,
	}
	for _, test := range p.tests() {
		tr := TestReport{Test: test.String(), Size: p.size(test), Unit: test.unit()}
		var all []*series
		for _, t := range targets {
			all = append(all, t.tests[test])
		}
		for _, s := range all {
			tr.Results = append(tr.Results, s.result(test, all))
		}
		r.Tests = append(r.Tests, tr)
	}
	return r
}

// closeAll may be called from any goroutine, any number of times.
func closeAll(clients []*client) {
	for _, c := range clients {
		c.conn.Close()
	}
}

// firstCause keeps the error that says more. One that only says that we closed the
// connection is the consequence of another.
func firstCause(have, next error) error {
	if have == nil || errors.Is(have, net.ErrClosed) && next != nil {
		return next
	}
	return have
}
