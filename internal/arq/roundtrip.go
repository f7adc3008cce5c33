package arq

import "time"

// roundTrip measures how long acknowledgements take. When many want the lanes, frames are
// late but not lost. If they were sent again like lost ones, all would be later still.
// Frames that were sent twice do not count, since it is unknown which of the two is
// acknowledged.
type roundTrip struct {
	// limit is the time without an acknowledgement after which a frame counts as lost.
	limit time.Duration

	mean     time.Duration // 0 while not known
	start    time.Time     // when frame seq was sent, and only once; zero: none is timed
	seq      uint32
	measured bool // since the last stop
}

// sent is called when a frame is sent for the first time.
func (r *roundTrip) sent(seq uint32, now time.Time) {
	if r.start.IsZero() {
		r.seq, r.start = seq, now
	}
}

// stop is called when frames are sent again.
func (r *roundTrip) stop() { r.start, r.measured = time.Time{}, false }

// acknowledged handles an acknowledgement of all frames before next. It reports whether
// limit fits the present ways. If frames were sent again since it was measured, it may be
// too short.
func (r *roundTrip) acknowledged(next uint32, now time.Time) bool {
	if !r.start.IsZero() && int32(next-r.seq) > 0 {
		took := now.Sub(r.start)
		if r.mean == 0 {
			r.mean = took
		} else {
			r.mean += (took - r.mean) / 8
		}
		r.limit = min(max(ResendFirst, 4*max(took, r.mean)), ResendMost)
		r.start, r.measured = time.Time{}, true
	}
	return r.measured
}
