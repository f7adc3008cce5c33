package meter

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"time"
)

// Result is a run as this side knows it.
type Result struct {
	Params
	Transport   string
	Remote      string // address of the control connection
	Started     time.Time
	Connected   [][2]string // addresses of the streams, this side's first
	Intervals   []Interval
	Here, There *Side  // nil if it is not known
	Output      string // of the server, if Params ask for it
}

func newResult(p Params, c net.Conn) *Result {
	return &Result{Params: p, Transport: transportOf(c), Remote: c.RemoteAddr().String(), Started: time.Now()}
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
	name := crand.Text()
	raw, err := t.dial(ctx, control, name, 0)
	if err != nil {
		return nil, &DialError{err}
	}
	c := newControlConn(raw, maxLine)
	c.trace = t.Trace
	defer c.Close()
	r := newRun(p, true)
	defer r.close()
	port := t.Port
	r.dial = func(ctx context.Context) (net.Conn, error) {
		to := t
		if to.Port = port; port != 0 { // without crr, whose streams dial at the same time
			port++
		}
		return to.dial(ctx, data, name, p.Window)
	}
	res := newResult(p, raw)
	if err := setUp(ctx, c, r, res); err != nil {
		return nil, cmp.Or(context.Cause(ctx), noEOF(err))
	}
	if o.Connected != nil {
		o.Connected(res)
	}
	if err := c.send(message{Do: "run"}); err != nil {
		return nil, err
	}
	life, end := context.WithCancel(context.Background()) // of the streams
	defer end()
	var lost error
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		m, err := c.receive(0)
		if res.There = m.Side; err != nil {
			lost = fmt.Errorf("the server: %w", noEOF(err))
			r.stop(err)
			end()
		} else if p.Output {
			m, _ = c.receive(0) // a server of before has none
			res.Output = m.Output
		}
	}()
	watched := r.begin(o, res)
	told := context.AfterFunc(ctx, func() {
		r.stop(context.Cause(ctx))
		_ = c.send(message{Do: "stop"}) // a server that sends ends by itself, unless it is told to
		if p.Test == verifying {        // there is nothing to be kept
			end()
		}
	})
	context.AfterFunc(r.stopped, func() { time.AfterFunc(stopTime, end) }) // a stream that hangs
	r.ends(life)
	r.stop(nil)
	if told() {
		_ = c.send(message{Do: "stop"}) // if it fails there is no answer
	}
	watched()
	res.Here = r.side()
	_ = c.SetReadDeadline(time.Now().Add(stopTime)) // if it fails there is no answer
	<-answered
	if p.Test == verifying {
		return res, cmp.Or(context.Cause(ctx), r.err(), lost)
	}
	return res, cmp.Or(context.Cause(ctx), lost, r.err())
}

// setUp agrees with the server about a run and opens its streams.
func setUp(ctx context.Context, c *controlConn, r *run, res *Result) error {
	defer context.AfterFunc(ctx, func() { c.Close() })() // the server then closes the streams
	if err := c.send(message{Params: &r.p}); err != nil {
		return err
	}
	_, err := c.receive(controlSlack)
	if err == io.EOF {
		err = errNotPerf
	}
	if err != nil {
		return err
	}
	for i, s := range r.streams[:r.p.total()] {
		if s.conn, err = r.dial(ctx); err == nil {
			err = attached(s.conn)
		}
		if err != nil {
			return fmt.Errorf("stream %d: %w", i+1, noEOF(err))
		}
		res.connected(s.conn)
	}
	return nil
}

func (r *Result) connected(c net.Conn) {
	r.Connected = append(r.Connected, [2]string{c.LocalAddr().String(), c.RemoteAddr().String()})
}

// attached waits until the server has attached a stream.
func attached(c net.Conn) error {
	if err := c.SetReadDeadline(time.Now().Add(controlSlack)); err != nil {
		return err
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		return err
	}
	return c.SetReadDeadline(time.Time{})
}
