package perf

import "time"

// maxBatch keeps one batch below what parseCommand accepts.
const maxBatch = 1 << 30

// pacer divides a stretch of time into batches of messages. They are few enough
// that the clock and the acknowledgement between batches cost nothing, and short
// enough that the stretch ends in time. The zero value begins with batches of one.
type pacer struct {
	n int
}

// run calls batch until d has passed. It returns the messages done and the exact
// time that they took.
func (p *pacer) run(d time.Duration, batch func(n int) error) (done int, took time.Duration, err error) {
	start := time.Now()
	for took < d {
		n := max(p.n, 1)
		if err := batch(n); err != nil {
			return done, took, err
		}
		done += n
		before := took
		took = time.Since(start)
		p.n = nextBatch(n, took-before, d/4)
	}
	return done, took, nil
}

// nextBatch returns the size of the batch after one of n messages that took took,
// when a batch should take target. It grows by at most eight times, since a short
// batch says little.
func nextBatch(n int, took, target time.Duration) int {
	scale := 8.0
	if took > 0 {
		scale = min(scale, float64(target)/float64(took))
	}
	return int(min(max(float64(n)*scale, 1), maxBatch))
}
