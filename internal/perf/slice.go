package perf

import (
	"sync"
	"time"
)

// maxSamples is how many single round trips one slice times, all connections
// together.
const maxSamples = 20000

// Test is what is measured.
type Test int

const (
	// RoundTrip sends messages to the server and back, one after the other.
	RoundTrip Test = iota
	// OneWay sends messages to the server as fast as possible.
	OneWay
)

// String returns the name of the test in the report.
func (t Test) String() string {
	if t == RoundTrip {
		return "round trip"
	}
	return "one way"
}

// unit returns the unit of what slice returns.
func (t Test) unit() string {
	if t == RoundTrip {
		return "us"
	}
	return "GB/s"
}

// stretch is what one connection did in a slice.
type stretch struct {
	messages int    // timed together
	all      int    // with those of the warm-up and of the samples
	sleeps   uint64 // while those were timed together
	start    time.Time
	took     time.Duration
	err      error
}

// slice measures a test on every client at once, after a warm-up. It returns
// microseconds for a round trip, or bytes per nanosecond, which is GB/s.
func slice(clients []*client, t Test, size int, d time.Duration) (float64, error) {
	return reduce(stretches(clients, t, size, d), t, size)
}

// stretches returns what each client did, in their order.
func stretches(clients []*client, t Test, size int, d time.Duration) []stretch {
	var ready, done sync.WaitGroup
	ready.Add(len(clients))
	all := make([]stretch, len(clients))
	for i, c := range clients {
		done.Go(func() {
			warm, _, err := c.batches(t, size, d/6)
			// No client begins before all are warm.
			ready.Done()
			ready.Wait()
			if err == nil {
				before := c.slept()
				all[i].start = time.Now()
				all[i].messages, all[i].took, err = c.batches(t, size, d)
				all[i].sleeps = c.slept() - before
			}
			all[i].all = warm + all[i].messages
			if err == nil && t == RoundTrip {
				err = c.takeSamples(size, d/6)
				all[i].all += len(c.samples)
			}
			if err != nil {
				// The other clients do not depend on this one, but the slice is
				// worthless now.
				closeAll(clients)
			}
			all[i].err = err
		})
	}
	done.Wait()
	return all
}

func (c *client) batches(t Test, size int, d time.Duration) (int, time.Duration, error) {
	if t == RoundTrip {
		return c.roundTrips.run(d, func(n int) error { return c.echo(size, n) })
	}
	return c.writes.run(d, func(n int) error { return c.sink(size, n) })
}

// slept returns 0 where sleeps are not counted.
func (c *client) slept() uint64 {
	if c.sleeps == nil {
		return 0
	}
	return c.sleeps()
}

// takeSamples times single round trips, for d or until the samples are full. It
// discards earlier samples.
func (c *client) takeSamples(size int, d time.Duration) error {
	c.samples = c.samples[:0]
	p := pacer{n: c.roundTrips.n}
	for start := time.Now(); time.Since(start) < d && len(c.samples) < cap(c.samples); {
		if err := c.sample(size, max(p.n/8, 1)); err != nil {
			return err
		}
	}
	return nil
}

// reduce combines all connections into one figure: the mean round trip in µs, or
// all bytes over the time from the first start to the last acknowledgement in GB/s.
func reduce(all []stretch, t Test, size int) (float64, error) {
	var (
		messages int
		took     time.Duration
		first    = all[0].start
		last     = all[0].start
		failed   error
	)
	for _, s := range all {
		failed = firstCause(failed, s.err)
		messages += s.messages
		took += s.took
		if s.start.Before(first) {
			first = s.start
		}
		if end := s.start.Add(s.took); end.After(last) {
			last = end
		}
	}
	if failed != nil {
		return 0, failed
	}
	if t == RoundTrip {
		return float64(took) / float64(messages) / 1e3, nil
	}
	return float64(messages) * float64(size) / float64(last.Sub(first)), nil
}
