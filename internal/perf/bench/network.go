package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/ntbnet/ntbnet/internal/perf"
)

// ErrUnsupported is the error of a Transport that cannot do a Task.
var ErrUnsupported = errors.New("not measured by this transport")

// Transport is a transport to measure. One goroutine uses it at a time.
type Transport interface {
	Name() string
	// Measure carries out a task for about d, after a warm-up. It ends when ctx
	// does.
	Measure(ctx context.Context, t Task, d time.Duration) (Outcome, error)
	// Close ends what Measure has started.
	Close() error
}

// DialFunc opens a connection.
type DialFunc func(context.Context, perf.Endpoint) (net.Conn, error)

// slack is how much longer than planned a measurement may take.
const slack = 10 * time.Second

// Network measures a transport whose servers are in another process.
type Network struct {
	// Commands is where a perf.Server listens, Bytes where a byte server does, and
	// HTTP where an HTTPServer does. All are of the same network.
	Commands, Bytes, HTTP perf.Endpoint
	Dial                  DialFunc
	// SpinOff, if not nil, measures the tasks that need spinning turned off.
	SpinOff Transport
}

// Name returns the name of the network.
func (n *Network) Name() string { return n.Commands.Network }

// Close closes SpinOff.
func (n *Network) Close() error {
	if n.SpinOff != nil {
		return n.SpinOff.Close()
	}
	return nil
}

// Measure implements Transport.
func (n *Network) Measure(ctx context.Context, t Task, d time.Duration) (Outcome, error) {
	if t.SpinOff && n.SpinOff != nil {
		return n.SpinOff.Measure(ctx, t, d)
	}
	limit := 2*max(d, time.Duration(t.Windows)*t.window()) + slack
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no end after %v: it hangs", limit))
	defer cancel()
	o, err := n.measure(ctx, t, d)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return o, err
}

func (n *Network) measure(ctx context.Context, t Task, d time.Duration) (Outcome, error) {
	switch t.Test {
	case RoundTrip:
		return n.slice(ctx, t, perf.RoundTrip, d)
	case OneWay:
		return n.slice(ctx, t, perf.OneWay, d)
	case Dialing:
		return n.dialing(ctx, d)
	case Get:
		return n.get(ctx, t, d)
	}
	return Outcome{}, ErrUnsupported
}

func (n *Network) slice(ctx context.Context, t Task, test perf.Test, d time.Duration) (Outcome, error) {
	g, err := perf.Connect(ctx, n.Commands, t.Connections, t.Size, n.Dial)
	if err != nil {
		return Outcome{}, err
	}
	defer g.Close()
	if t.Windows > 0 {
		return fairness(ctx, g, t)
	}
	f, err := g.Slice(ctx, test, t.Size, d)
	if err != nil {
		return Outcome{}, err
	}
	return Outcome{Value: f.Value, Rate: f.Sum(), Slowest: f.Slowest()}, nil
}

// fairness measures the shares of the connections. Measure ends one that takes too long.
func fairness(ctx context.Context, g *perf.Group, t Task) (Outcome, error) {
	if t.Test != RoundTrip {
		return Outcome{}, ErrUnsupported
	}
	var f perf.Fairness
	// On a machine that is busy, nothing may have come back in a short window.
	for window := t.window(); f.Sum == 0; window *= 2 {
		var err error
		if f, err = g.Fairness(ctx, t.Size, window, t.Windows); err != nil {
			return Outcome{}, err
		}
	}
	mean := 1e6 * float64(t.Connections) / f.Sum // µs
	return Outcome{Value: mean, Rate: f.Sum, Slowest: slices.Min(f.Slowest), P50: f.P50, P99: f.P99}, nil
}

// Verify sends pseudo-random bytes each way on a connection and checks every one.
func (n *Network) Verify(ctx context.Context, bytes uint64) error {
	g, err := perf.Connect(ctx, n.Commands, 1, 1, n.Dial)
	if err != nil {
		return err
	}
	defer g.Close()
	return g.Verify(ctx, bytes)
}

// repeat calls f until d has passed after a warm-up, and returns the calls per
// second.
func repeat(d time.Duration, f func() error) (float64, error) {
	for start := time.Now(); time.Since(start) < d/6; {
		if err := f(); err != nil {
			return 0, err
		}
	}
	n, start, took := 0, time.Now(), time.Duration(0)
	for ; took < d; took = time.Since(start) {
		if err := f(); err != nil {
			return 0, err
		}
		n++
	}
	return float64(n) / took.Seconds(), nil
}

// dialing opens connections one after the other, and sends a byte to and fro on
// each before it closes it.
func (n *Network) dialing(ctx context.Context, d time.Duration) (Outcome, error) {
	var now current
	defer context.AfterFunc(ctx, now.abort)()
	rate, err := repeat(d, func() error {
		c, err := n.Dial(ctx, n.Bytes)
		if err != nil {
			return err
		}
		now.set(c)
		var b [1]byte
		if _, err := c.Write(b[:]); err != nil {
			c.Close()
			return err
		}
		if _, err := io.ReadFull(c, b[:]); err != nil {
			c.Close()
			return err
		}
		return c.Close()
	})
	return Outcome{Value: rate}, err
}

// current is the connection to close when the time is over.
type current struct {
	mu      sync.Mutex
	conn    net.Conn // guarded by mu
	aborted bool     // guarded by mu
}

func (c *current) set(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn = conn
	if c.aborted {
		conn.Close()
	}
}

func (c *current) abort() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.aborted = true
	if c.conn != nil {
		c.conn.Close()
	}
}

// get runs clients that each have one connection, and ask for the next body when
// they have read the last one.
func (n *Network) get(ctx context.Context, t Task, d time.Duration) (Outcome, error) {
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return n.Dial(ctx, n.HTTP)
		},
		MaxIdleConnsPerHost: t.Connections,
		DisableCompression:  true,
	}
	defer transport.CloseIdleConnections()
	var (
		client  = &http.Client{Transport: transport}
		clients sync.WaitGroup
		rates   = make([]float64, t.Connections)
		errs    = make([]error, t.Connections)
	)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for i := range t.Connections {
		clients.Go(func() {
			rates[i], errs[i] = repeat(d, func() error { return getOnce(ctx, client, t.Size) })
			if errs[i] != nil {
				cancel()
			}
		})
	}
	clients.Wait()
	var o Outcome
	for _, r := range rates {
		o.Value += r
	}
	return o, firstReal(errs)
}

// firstReal returns the first error that is not the consequence of another.
func firstReal(errs []error) (first error) {
	for _, err := range errs {
		if first == nil || errors.Is(first, context.Canceled) && err != nil {
			first = err
		}
	}
	return first
}

func getOnce(ctx context.Context, client *http.Client, size int) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://bench/%d", size), nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK || n != int64(size) {
		return fmt.Errorf("http: status %s with %d bytes", resp.Status, n)
	}
	return nil
}
