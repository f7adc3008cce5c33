package perf

import (
	"context"
	"io"
	"math/bits"
	"slices"
	"sync"
	"time"
)

// Fairness is how the connections of a group that make round trips at the same time share what
// there is.
type Fairness struct {
	// Sum is the round trips per second of all connections together.
	Sum float64
	// Slowest has for each window of time the round trips of its slowest connection, as a
	// fraction of the fair share, which is the mean.
	Slowest []float64
	// P50 and P99 are of single round trips, in microseconds. They are exact to 3 %.
	P50, P99 float64
	// Messages is how many round trips there were, with those of the warm-up.
	Messages int
}

// Fairness makes round trips of size bytes on all connections, after a warm-up, for some windows
// of time, one behind the other. If ctx ends or the transport hangs, it closes the connections
// and fails.
func (g *Group) Fairness(ctx context.Context, size int, window time.Duration, windows int) (f Fairness, err error) {
	d := window * time.Duration(windows)
	err = g.t.guard(ctx, 2*d, func() error {
		f, err = shares(g.t.clients, size, window, windows)
		return err
	})
	return f, err
}

// shares has all clients make round trips in the same windows.
func shares(clients []*client, size int, window time.Duration, windows int) (f Fairness, failed error) {
	var ready, done sync.WaitGroup
	ready.Add(len(clients))
	start := sync.OnceValue(time.Now)
	all, errs, warm := make([]share, len(clients)), make([]error, len(clients)), make([]int, len(clients))
	for i, c := range clients {
		all[i].counts = make([]int, windows)
		done.Go(func() {
			var err error
			warm[i], _, err = c.batches(RoundTrip, size, window/6)
			// No client begins before all are warm.
			ready.Done()
			ready.Wait()
			if err == nil {
				err = c.share(size, start(), window, &all[i])
			}
			if err != nil {
				closeAll(clients) // the figures are worthless now
			}
			errs[i] = err
		})
	}
	done.Wait()
	for i, err := range errs {
		failed = firstCause(failed, err)
		f.Messages += warm[i] + all[i].messages
	}
	if failed != nil {
		return f, failed
	}
	f.combine(all, window)
	return f, nil
}

// combine computes the figures.
func (f *Fairness) combine(all []share, window time.Duration) {
	var times histogram
	total := 0
	for i := range all {
		times.add(&all[i].times)
	}
	for w := range all[0].counts {
		var counts []int
		sum := 0
		for i := range all {
			counts = append(counts, all[i].counts[w])
			sum += all[i].counts[w]
		}
		slowest := 0.
		if sum > 0 {
			slowest = float64(slices.Min(counts)) * float64(len(counts)) / float64(sum)
		}
		f.Slowest = append(f.Slowest, slowest)
		total += sum
	}
	f.Sum = float64(total) / (window * time.Duration(len(all[0].counts))).Seconds()
	f.P50, f.P99 = micros(times.percentile(50)), micros(times.percentile(99))
}

// share is what one connection did.
type share struct {
	counts   []int // round trips that ended in each window
	times    histogram
	messages int
}

// timedEach is of how many round trips one is timed. Reading the clock takes time of its own.
const timedEach = 8

// share makes round trips until the windows, which began at start, are over. It does not
// allocate.
func (c *client) share(size int, start time.Time, window time.Duration, to *share) error {
	out, in, r := c.out[:size], c.in[:size], io.Reader(c.conn)
	end := start.Add(window * time.Duration(len(to.counts)))
	now := time.Now()
	for n := 1; now.Before(end); {
		begun := now
		if err := c.send(command{op: opEcho, size: uint32(size), count: uint64(n)}); err != nil {
			return err
		}
		pending := 0 // not counted yet
		for i := range n {
			timed := i%timedEach == 0
			var before time.Time
			if timed {
				before = time.Now()
			}
			if _, err := c.conn.Write(out); err != nil {
				return err
			}
			if _, err := io.ReadFull(r, in); err != nil {
				return noEOF(err)
			}
			pending++
			if timed {
				now = time.Now()
				to.times[bucketOf(now.Sub(before))]++
				to.count(now.Sub(start), window, pending)
				pending = 0
			}
		}
		now = time.Now()
		to.count(now.Sub(start), window, pending)
		to.messages += n
		n = nextBatch(n, now.Sub(begun), window/16)
	}
	return nil
}

// count counts n round trips that ended at a time since the start.
func (s *share) count(at, window time.Duration, n int) {
	if w := int(at / window); w < len(s.counts) {
		s.counts[w] += n
	}
}

// histogram counts times. A bucket is 1/32 of its times wide.
type histogram [buckets]uint32

const (
	precision = 5 // bits of a time that count
	buckets   = (64-precision)<<precision + 1<<precision
)

// bucketOf returns the bucket of a time.
func bucketOf(d time.Duration) int {
	v := uint64(max(d, 0))
	shift := max(bits.Len64(v)-precision-1, 0)
	return shift<<precision + int(v>>shift)
}

// middle returns the time in the middle of a bucket.
func middle(bucket int) time.Duration {
	shift := max(bucket>>precision-1, 0)
	low := uint64(bucket-shift<<precision) << shift
	return time.Duration(low + (1<<shift)/2)
}

func (h *histogram) add(other *histogram) {
	for i, n := range other {
		h[i] += n
	}
}

// percentile returns about the smallest time that at least p percent do not exceed, or 0 if there
// are none.
func (h *histogram) percentile(p float64) time.Duration {
	total := 0.
	for _, n := range h {
		total += float64(n)
	}
	seen := 0.
	for i, n := range h {
		if seen += float64(n); n > 0 && seen >= p/100*total {
			return middle(i)
		}
	}
	return 0
}
