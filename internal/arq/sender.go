package arq

import "time"

// Sender numbers frames, and keeps them until they are acknowledged. What is gathered
// between Begin and EndFrame is the body of the next one.
type Sender struct {
	queue queue
	base  uint32 // sequence number of the first frame kept
	next  int    // of the frames kept, the next to be sent
	high  int    // of the frames kept, the first that was never sent

	trip     roundTrip
	timeout  time.Duration // how long without an acknowledgement before frames are sent again
	progress time.Time     // of the last acknowledgement, or when the first frame that waits for one was sent
	silent   time.Time     // since when nothing that is kept was acknowledged

	stats Stats
}

// Stats are the counters of a Sender.
type Stats struct {
	Sent      uint64 // frames of data, without repetitions
	SentBytes uint64 // of their bodies
	Resent    uint64 // repetitions
	Restarts  uint32 // how often all that was kept was sent again
}

func newSender(buf []byte, frames int) Sender {
	if frames&(frames-1) != 0 || frames <= bare {
		panic("arq: the number of frames must be a power of two, and more than 8")
	}
	return Sender{
		queue: queue{buf: buf, frames: make([]kept, frames)}, base: 1,
		trip: roundTrip{limit: ResendFirst}, timeout: ResendFirst,
	}
}

// Kept returns how many frames are kept. Those beyond Unsent are not acknowledged.
func (s *Sender) Kept() int { return s.queue.count }

// Unsent returns how many of the frames that are kept were never sent.
func (s *Sender) Unsent() int { return s.queue.count - s.high }

// Stats returns the counters.
func (s *Sender) Stats() Stats { return s.stats }

// Silent returns for how long nothing that is kept was acknowledged, or 0 if nothing is
// kept.
func (s *Sender) Silent(now time.Time) time.Duration {
	if s.queue.count == 0 {
		return 0
	}
	return now.Sub(s.silent)
}

// Gathering reports whether a body is open.
func (s *Sender) Gathering() bool { return s.queue.openMax > 0 }

// Left returns how many bytes the open body has left.
func (s *Sender) Left() int { return s.queue.openMax - s.queue.openLen }

// Fits reports whether Begin would open a body of up to n bytes.
func (s *Sender) Fits(n int) bool {
	_, ok := s.queue.fit(n)
	return ok
}

// Begin opens a body of up to n bytes, n > 0. It returns false if there is no room. No body
// may be open.
func (s *Sender) Begin(n int) bool { return s.queue.begin(n) }

// Extend returns n more bytes of the open body, which must have them.
func (s *Sender) Extend(n int) []byte { return s.queue.extend(n) }

// EndFrame makes a frame of the open body, if there is one.
func (s *Sender) EndFrame(now time.Time) {
	if s.Gathering() {
		s.begins(now)
		s.queue.end()
	}
}

// Reopens reports whether Reopen would go on with the last frame.
func (s *Sender) Reopens(need, n int) bool { return s.Unsent() > 0 && s.queue.reopens(need, n) }

// Reopen opens the last frame's body again, up to n bytes in all, if it was never sent, has
// does not ask, and has need bytes left then. It reports whether it did. No body may be open.
func (s *Sender) Reopen(need, n int) bool { return s.Unsent() > 0 && s.queue.reopen(need, n) }

// Reopened reports whether the open body is that of a frame that was complete. What was to be
// sent without delay may be in it: so it is ended as soon as it could be sent.
func (s *Sender) Reopened() bool { return s.queue.again }

// Acknowledged returns the number of the first frame that is not acknowledged, and End that of the
// next one that will be kept.
func (s *Sender) Acknowledged() uint32 { return s.base }
func (s *Sender) End() uint32          { return s.base + uint32(s.queue.count) }

// Ask has the last frame that was never sent, or else one of its own, ask for an acknowledgement at
// once. It returns false if there is no room, or close is the last frame.
func (s *Sender) Ask(now time.Time) bool {
	switch {
	case s.finished():
		return false
	case s.Unsent() > 0:
		s.queue.at(s.queue.count - 1).asks = true
	case s.queue.count < len(s.queue.frames)-2:
		s.begins(now)
		s.queue.push(kept{kind: Data, asks: true})
	default:
		return false
	}
	return true
}

// begins is called before a frame is kept.
func (s *Sender) begins(now time.Time) {
	if s.queue.count == 0 {
		s.silent = now
	}
}

// finished reports whether close is the last frame.
func (s *Sender) finished() bool {
	return s.queue.count > 0 && s.queue.at(s.queue.count-1).kind == Close
}

// finish puts close behind all that is kept. It returns false if it is there.
func (s *Sender) finish(now time.Time) bool {
	if s.finished() {
		return false
	}
	s.EndFrame(now)
	s.begins(now)
	s.queue.push(kept{kind: Close})
	return true
}

// clear forgets all that is kept, as if it was acknowledged.
func (s *Sender) clear() {
	s.queue.openMax, s.queue.again = 0, false
	s.base += uint32(s.queue.count)
	s.queue.drop(s.queue.count)
	s.next, s.high = 0, 0
}

// frame returns the next frame that is to be sent, if there is one.
func (s *Sender) frame() (f Frame, ok bool) {
	if s.next == s.queue.count {
		return f, false
	}
	k := s.queue.at(s.next)
	return Frame{Kind: k.kind, Seq: s.base + uint32(s.next), Asks: k.asks, Body: s.queue.body(k)}, true
}

// sent is called when the frame that frame has returned was sent.
func (s *Sender) sent(f *Frame, now time.Time) {
	s.next++
	switch {
	case s.next <= s.high:
		s.stats.Resent++
	case f.Kind == Data:
		s.stats.Sent++
		s.stats.SentBytes += uint64(len(f.Body))
	}
	if s.next > s.high {
		s.high = s.next
		s.trip.sent(f.Seq, now)
	}
	if s.next == 1 || f.Kind == Close {
		// This is not done for each frame: otherwise a writer that goes on would
		// put off the repetition of lost frames.
		s.progress = now
	}
}

// acknowledged handles an acknowledgement of all frames before next. ok is false if one of them was not sent. closed
// reports whether one of them is a close.
func (s *Sender) acknowledged(next uint32, now time.Time) (closed, ok bool) {
	n := int(int32(next - s.base))
	switch {
	case n <= 0:
		return false, true
	case n > s.high:
		return false, false
	}
	s.progress, s.silent = now, now
	if s.trip.acknowledged(next, now) {
		s.timeout = s.trip.limit
	}
	closed = s.queue.at(n-1).kind == Close
	s.queue.drop(n)
	s.base += uint32(n)
	s.next, s.high = max(0, s.next-n), s.high-n
	return closed, true
}

// again has everything that is kept sent again from the beginning.
func (s *Sender) again(now time.Time) {
	s.trip.stop()
	s.next = 0
	s.progress = now
	s.stats.Restarts++
}

// shorten makes the timeout as short as round trips allow. It reports whether it was longer.
func (s *Sender) shorten() bool {
	was := s.timeout
	s.timeout = s.trip.limit
	return was > s.timeout
}

// deadline returns when everything is to be sent again, zero if nothing waits for an
// acknowledgement.
func (s *Sender) deadline() time.Time {
	if s.high == 0 {
		return time.Time{}
	}
	return s.progress.Add(s.timeout)
}

// expire has everything sent again if nothing was acknowledged for the timeout, and then
// waits for twice as long. It reports whether it did.
func (s *Sender) expire(now time.Time) bool {
	if s.high == 0 || now.Before(s.deadline()) {
		return false
	}
	s.timeout = min(2*s.timeout, ResendMost)
	return true
}
