package ring

import "time"

// roundTrip measures how long acknowledgements take. When many want the lanes, frames are
// late but not lost. If they were sent again like lost ones, all would be later still.
// Frames that were sent twice do not count, since it is unknown which of the two is
// acknowledged. It is arithmetic; the tunnel's mu guards it.
type roundTrip struct {
	// limit is the time without an acknowledgement after which a frame counts as
	// lost.
	limit time.Duration

	mean     time.Duration // 0 while not known
	timing   bool          // frame seq was sent at start, and only once
	seq      uint32
	start    time.Time
	measured bool // since the last stop
}

// sent is called when a frame is sent for the first time.
func (r *roundTrip) sent(seq uint32, now time.Time) {
	if !r.timing {
		r.timing, r.seq, r.start = true, seq, now
	}
}

// stop is called when frames are sent again.
func (r *roundTrip) stop() { r.timing, r.measured = false, false }

// acknowledged handles an acknowledgement of all frames before next. It reports whether
// limit fits the present ways. If frames were sent again since it was measured, it may be
// too short.
func (r *roundTrip) acknowledged(next uint32, now time.Time) bool {
	if r.timing && int32(next-r.seq) > 0 {
		took := now.Sub(r.start)
		if r.mean == 0 {
			r.mean = took
		} else {
			r.mean += (took - r.mean) / 8
		}
		r.limit = min(max(resendFirst, 4*max(took, r.mean)), resendMost)
		r.timing, r.measured = false, true
	}
	return r.measured
}
