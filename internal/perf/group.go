package perf

import (
	"context"
	"net"
	"slices"
	"time"
)

// Group is a set of connections to one server that work at the same time. It is the
// part of Run that other callers combine differently. One goroutine uses it at a
// time.
type Group struct {
	t *target
}

// Figures are the results of one slice.
type Figures struct {
	// Value is the result of the test: the mean round trip in microseconds, or GB/s
	// (10^9 bytes) of all connections together.
	Value float64
	// Each is the messages or round trips per second of each connection.
	Each []float64
	// P50 and P99 are of single round trips, in microseconds. They need samples,
	// see TakeSamples.
	P50, P99 float64
	// Messages is how many messages or round trips there were on all connections, those
	// that no figure is made of among them.
	Messages int
	// Sleeps is how often an end of a connection slept while Value was measured, see CountSleeps.
	Sleeps uint64
}

// Sum returns the messages or round trips per second of all connections.
func (f Figures) Sum() (sum float64) {
	for _, v := range f.Each {
		sum += v
	}
	return sum
}

// Slowest returns the rate of the slowest connection as a fraction of the fair
// share, which is the mean.
func (f Figures) Slowest() float64 {
	return slices.Min(f.Each) * float64(len(f.Each)) / f.Sum()
}

// Connect opens n connections, at least 1, for messages of up to largest bytes. It
// checks that they use e's transport and reach a server of this program. The caller
// closes the Group.
func Connect(ctx context.Context, e Endpoint, n, largest int, dial func(context.Context, Endpoint) (net.Conn, error)) (*Group, error) {
	t := &target{Endpoint: e}
	p := Plan{RoundTripSize: largest, Connections: n, Dial: dial}
	if err := t.connect(ctx, p, 0); err != nil {
		closeAll(t.clients)
		return nil, err
	}
	return &Group{t}, nil
}

// TakeSamples allocates space for the times of n single round trips, of all
// connections together. Slice then takes them, in a third of its time on top.
func (g *Group) TakeSamples(n int) {
	for _, c := range g.t.clients {
		c.samples = make([]time.Duration, 0, n/len(g.t.clients))
	}
}

// CountSleeps has Slice count how often an end of a connection slept. slept returns how often one of
// c has since it was made. It is called on the goroutine that uses c, between two of its calls.
func (g *Group) CountSleeps(slept func(c net.Conn) uint64) {
	for _, c := range g.t.clients {
		c.sleeps = func() uint64 { return slept(c.conn) }
	}
}

// Slice measures a test with messages of size bytes for d, after a warm-up. If
// ctx ends or the transport hangs, it closes the connections and fails.
func (g *Group) Slice(ctx context.Context, t Test, size int, d time.Duration) (f Figures, err error) {
	err = g.t.guard(ctx, 2*d, func() error {
		all := stretches(g.t.clients, t, size, d)
		f.Value, err = reduce(all, t, size)
		for _, s := range all {
			f.Each = append(f.Each, float64(s.messages)/s.took.Seconds())
			f.Messages += s.all
			f.Sleeps += s.sleeps
		}
		if err == nil && t == RoundTrip {
			f.P50, f.P99 = g.percentiles()
		}
		return err
	})
	return f, err
}

// percentiles returns the percentiles of the samples of the last slice, or 0 if
// there are none.
func (g *Group) percentiles() (p50, p99 float64) {
	var all []time.Duration
	for _, c := range g.t.clients {
		all = append(all, c.samples...)
	}
	if len(all) == 0 {
		return 0, 0
	}
	slices.Sort(all)
	return micros(percentile(all, 50)), micros(percentile(all, 99))
}

// Verify sends about n pseudo-random bytes each way, divided among the
// connections, and checks every one.
func (g *Group) Verify(ctx context.Context, n uint64) error {
	return g.t.guard(ctx, 0, func() error {
		return verifyClients(g.t.clients, n/uint64(len(g.t.clients)))
	})
}

// Echo makes one round trip of size bytes on every connection, one connection
// after the other.
func (g *Group) Echo(ctx context.Context, size int) error {
	return g.each(ctx, func(c *client) error { return c.echo(size, 1) })
}

// each calls f for every connection under a time limit, one after the other.
func (g *Group) each(ctx context.Context, f func(c *client) error) error {
	return g.t.guard(ctx, 0, func() error {
		for _, c := range g.t.clients {
			if err := f(c); err != nil {
				return err
			}
		}
		return nil
	})
}

// Memory returns the memory (PSS) in bytes of this process and the server's
// together, without garbage.
func (g *Group) Memory(ctx context.Context) (uint64, error) {
	return g.both(ctx, opMemory, memory)
}

// CPU returns the processor time that this process and the server's have used.
func (g *Group) CPU(ctx context.Context) (time.Duration, error) {
	n, err := g.both(ctx, opCPU, cpu)
	return time.Duration(n), err
}

// both asks the server over the first connection, and adds the value of this
// process.
func (g *Group) both(ctx context.Context, op op, here func() (uint64, error)) (there uint64, err error) {
	c := g.t.clients[0]
	err = g.t.guard(ctx, 0, func() error {
		if err := c.send(command{op: op}); err != nil {
			return err
		}
		there, err = c.receive()
		return err
	})
	if err != nil {
		return 0, err
	}
	own, err := here()
	return own + there, err
}

// Close closes the connections. It may be called from any goroutine.
func (g *Group) Close() { closeAll(g.t.clients) }
