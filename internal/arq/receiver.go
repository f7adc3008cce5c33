package arq

import "time"

// Receiver says which frames in sequence are taken: each once, in order. The zero Receiver
// expects the first frame.
type Receiver struct {
	taken uint32 // frames
}

// Verdict is what becomes of a frame in sequence.
type Verdict uint8

const (
	Take      Verdict = iota // it is the next one
	Duplicate                // it was taken before
	Gap                      // one before it is missing
)

// String returns "take", "duplicate" or "gap".
func (v Verdict) String() string { return [...]string{"take", "duplicate", "gap", "verdict 3"}[v&3] }

// Judge returns what becomes of frame seq. It changes nothing: a frame that is to be taken
// counts when Took is called.
func (r *Receiver) Judge(seq uint32) Verdict {
	switch d := int32(seq - r.Expects()); {
	case d == 0:
		return Take
	case d < 0:
		return Duplicate
	}
	return Gap
}

// Took counts the frame for which Judge has returned Take.
func (r *Receiver) Took() { r.taken++ }

// Expects returns the sequence number expected next.
func (r *Receiver) Expects() uint32 { return r.taken + 1 }

// acks is what an End acknowledges: with each frame that it sends, and in a frame of its own
// if that is late.
type acks struct {
	next  uint32 // all before it was taken
	owed  int    // bytes that were taken, and not acknowledged
	most  int    // value of owed at which an acknowledgement is due at once
	state ackState
	late  time.Time // when one is due; valid in ackLater
}

type ackState uint8

const (
	ackNone  ackState = iota // all is acknowledged
	ackLater                 // an acknowledgement is due at late, unless a frame carries it before
	ackDue                   // one is due
)

// owe counts n bytes of frames before next that came. If atOnce is true, that is acknowledged at once.
func (a *acks) owe(next uint32, n int, atOnce bool, now time.Time) {
	if int32(next-a.next) > 0 { // a goroutine that took an earlier frame may come later
		a.next = next
	}
	a.owed += n
	switch {
	case atOnce || a.owed >= a.most:
		a.state = ackDue
	case a.state == ackNone:
		a.state, a.late = ackLater, now.Add(AckDelay)
	}
}

// due reports whether an acknowledgement is due.
func (a *acks) due(now time.Time) bool {
	if a.state == ackLater && !now.Before(a.late) {
		a.state = ackDue
	}
	return a.state == ackDue
}

// deadline returns when a delayed acknowledgement is due, zero if none is delayed.
func (a *acks) deadline() time.Time {
	if a.state == ackLater {
		return a.late
	}
	return time.Time{}
}

// sent is called when a frame that acknowledges was sent.
func (a *acks) sent() { a.owed, a.state = 0, ackNone }
