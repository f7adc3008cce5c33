package meter

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"
)

// Result is a run as this side knows it.
type Result struct {
	Params
	Transport     string
	Local, Remote string // addresses of the control connection
	Started       time.Time
	Connected     [][2]string // addresses of the streams, this side's first
	Intervals     []Interval
	Here, There   *Side     // nil if it is not known
	Before        [2]uint64 // memory of both sides before the connections of Idle
}

// Target is a server.
type Target struct {
	Transport string
	Address   string
	Timeout   time.Duration // for each dial
}

// DialError is the error of a server that is not reached.
type DialError struct{ error }

// Unwrap returns the cause.
func (e *DialError) Unwrap() error { return e.error }

// stopTime is how long the server may take to end a run.
const stopTime = drainTime + 5*time.Second

// Verify has each of so many streams carry n pseudo-random bytes each way, and checks all.
func Verify(ctx context.Context, t Target, streams int, n uint64) error {
	r, err := Run(ctx, t, Params{Test: verifying, Streams: streams, Size: 1, Bytes: n, Seed: rand.Uint64()}, Observer{})
	if r != nil && err != nil {
		return fmt.Errorf("verifying: %w", err)
	}
	return err
}

// Run carries out one run. With an error, the result is what was measured until then, or nil if
// nothing was. When ctx ends, the run ends early, and the error is ctx's cause.
func Run(ctx context.Context, t Target, p Params, o Observer) (*Result, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	name := newRunName()
	raw, err := t.dial(ctx, preamble{kind: control, run: name}, 0)
	if err != nil {
		return nil, &DialError{err}
	}
	c := newControlConn(raw)
	defer c.Close()
	r := newRun(p, true)
	defer r.close()
	res := &Result{Params: p, Transport: transportOf(raw), Local: raw.LocalAddr().String(), Remote: raw.RemoteAddr().String(), Started: time.Now()}
	if err := setUp(ctx, t, c, r, res, name); err != nil {
		return nil, err
	}
	if o.Connected != nil {
		o.Connected(res)
	}
	if err := c.send(message{Do: "run"}); err != nil {
		return nil, err
	}
	answers := make(chan message, 1)
	lost := make(chan error, 1)
	life, end := context.WithCancel(context.Background()) // of the streams
	defer end()
	go func() {
		m, err := c.receive()
		if err != nil {
			lost <- fmt.Errorf("the server: %w", noEOF(err))
			r.stop(err)
			end()
			return
		}
		answers <- m
	}()
	r.begin()
	watched := r.observe(o, res)
	interrupted := context.AfterFunc(ctx, func() {
		r.stop(context.Cause(ctx))
		if p.Test == verifying { // there is nothing to be kept
			end()
		}
	})
	guard := context.AfterFunc(r.stopped, func() { // a stream that hangs
		if p.Test != verifying {
			time.AfterFunc(stopTime, end)
		}
	})
	// A server that sends ends by itself, unless it is told to.
	told := context.AfterFunc(ctx, func() { _ = c.send(message{Do: "stop"}) })
	r.ends(life)
	r.stop(nil)
	guard()
	interrupted()
	if told() {
		_ = c.send(message{Do: "stop"}) // if it fails there is no answer
	}
	watched()
	res.Here = r.side()
	timeout := time.NewTimer(stopTime)
	defer timeout.Stop()
	select {
	case m := <-answers:
		res.There = m.Side
	case err = <-lost:
	case <-timeout.C:
		err = errors.New("the server has not answered in time")
	}
	if ctx.Err() != nil {
		return res, context.Cause(ctx)
	}
	if own := r.err(); own != nil && (err == nil || p.Test == verifying) {
		err = own
	}
	return res, err
}

// dial connects, and sends a preamble.
func (t Target) dial(ctx context.Context, p preamble, window int) (net.Conn, error) {
	c, err := Dial(ctx, t.Transport, t.Address, t.Timeout)
	if err != nil {
		return nil, err
	}
	if got := transportOf(c); got != t.Transport {
		c.Close()
		return nil, fmt.Errorf("the connection goes by %s", got)
	}
	err = setWindow(c, window)
	if err == nil {
		_, err = c.Write(p.bytes())
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// setUp agrees with the server about a run and opens its streams.
func setUp(ctx context.Context, t Target, c *controlConn, r *run, res *Result, name string) error {
	defer context.AfterFunc(ctx, func() { c.Close() })()
	explain := func(err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return noEOF(err)
	}
	if err := c.SetReadDeadline(time.Now().Add(controlSlack)); err != nil {
		return err
	}
	if err := c.send(message{Do: "start", Params: &r.p}); err != nil {
		return explain(err)
	}
	if err := c.first(); err != nil {
		return explain(err)
	}
	if _, err := c.receive(); err != nil {
		return explain(err)
	}
	if r.p.Test == Idle {
		var err error
		if res.Before, err = usage(c); err != nil {
			return explain(err)
		}
	}
	dial := func(ctx context.Context, i int) (net.Conn, error) {
		return t.dial(ctx, preamble{kind: data, stream: i, run: name}, r.p.Window)
	}
	for i, s := range r.streams[:r.p.total()] {
		var err error
		if s.conn, err = dial(ctx, i); err != nil {
			return fmt.Errorf("stream %d: %w", i+1, err)
		}
		res.Connected = append(res.Connected, [2]string{s.conn.LocalAddr().String(), s.conn.RemoteAddr().String()})
	}
	r.dial = func(ctx context.Context) (net.Conn, error) { return dial(ctx, 0) }
	if _, err := c.receive(); err != nil {
		return explain(err)
	}
	return c.SetReadDeadline(time.Time{})
}

// usage returns the memory of both sides.
func usage(c *controlConn) (both [2]uint64, err error) {
	if err := c.send(message{Do: "usage"}); err != nil {
		return both, err
	}
	m, err := c.receive()
	if err != nil {
		return both, err
	}
	if m.Side == nil {
		return both, errNotPerf
	}
	return [2]uint64{memory(), m.Side.Memory}, nil
}
