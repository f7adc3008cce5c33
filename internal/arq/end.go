package arq

import (
	"fmt"
	"time"
)

// Times of an End.
const (
	OpenEvery   = 50 * time.Millisecond   // between two opens
	AckDelay    = 5 * time.Millisecond    // how long an acknowledgement waits for a frame that carries it
	ResendFirst = 200 * time.Millisecond  // the shortest timeout
	ResendMost  = 3200 * time.Millisecond // the longest
	// LingerFor is how long an End that is closed here waits for the other end to
	// acknowledge that.
	LingerFor = 30 * time.Second
)

// Config is how an End keeps frames, and when it acknowledges.
type Config struct {
	Buf    []byte // memory for the bodies of frames that are not acknowledged
	Frames int    // how many frames are kept at most, a power of two, more than 8
	AckAt  int    // bytes that are acknowledged at once when they are owed
}

// handshake is the state of an End, and what it says to the other end about that.
type handshake struct {
	state State
	next  Kind // Open or Accept if that is to be sent next, else None
	// unheard is Open or Accept until the other end is known to have it, then None. It
	// comes again before what is sent again.
	unheard Kind
	at      time.Time // Opening: when open is sent again; Lingering: when that ends
}

// become changes the state. A change that is not legal is a fault of this package.
func (h *handshake) become(to State) {
	if !h.state.MayBecome(to) {
		panic(fmt.Sprintf("arq: from %v to %v", h.state, to))
	}
	if h.state = to; to == Up || to.Over() {
		h.next, h.unheard = None, None
	}
}

// deadline returns when expire is to be called, zero for never.
func (h *handshake) deadline() time.Time {
	if h.state == Opening || h.state == Lingering {
		return h.at
	}
	return time.Time{}
}

// End is one end of a stream of frames: its handshake, its sender, and what it acknowledges
// for its [Receiver].
type End struct {
	Sender
	hand handshake
	acks acks
}

func newEnd(c Config, h handshake) End {
	return End{Sender: newSender(c.Buf, c.Frames), hand: h, acks: acks{next: 1, most: max(1, c.AckAt)}}
}

// Asker returns the end of a process that asks another one for the other end.
func Asker(c Config, now time.Time) End {
	return newEnd(c, handshake{state: Opening, next: Open, unheard: Open, at: now.Add(OpenEvery)})
}

// Answerer returns the end of a process that was asked.
func Answerer(c Config) End { return newEnd(c, handshake{state: Up, next: Accept, unheard: Accept}) }

// State returns the state.
func (e *End) State() State { return e.hand.state }

// Agreed reports whether the End is up and the other end is known to be there, for this stream.
func (e *End) Agreed() bool { return e.hand.state == Up && e.hand.unheard == None }

// Next returns the frame that is to be sent next, if there is one. It returns the same one
// until Sent is called, or something else happens.
func (e *End) Next(now time.Time) (f Frame, ok bool) {
	switch {
	case e.hand.next != None:
		return Frame{Kind: e.hand.next, Ack: e.acks.next}, true
	case e.hand.state == Opening:
		return f, false
	case !e.hand.state.Over():
		if f, ok = e.Sender.frame(); ok {
			f.Ack = e.acks.next
			return f, true
		}
	}
	return Frame{Kind: Ack, Ack: e.acks.next}, e.acks.due(now)
}

// Sent is called when the frame that Next has returned was sent.
func (e *End) Sent(f *Frame, now time.Time) {
	switch f.Kind {
	case Open, Accept:
		e.hand.next = None
		return // what it acknowledges is not read
	case Data, Close:
		e.Sender.sent(f, now)
	}
	e.acks.sent()
}

// Accepted handles an accept. ackAt is as in Config. It reports whether the End was waiting
// for it.
func (e *End) Accepted(ackAt int) bool {
	if e.hand.state != Opening {
		return false
	}
	e.acks.most = max(1, ackAt)
	e.hand.become(Up)
	return true
}

// OpenedAgain handles an open that asks for this end although there is one. Either accept was
// lost, or is late, and so is everything behind it, or this open is late.
func (e *End) OpenedAgain(now time.Time) {
	if e.hand.state == Opening || e.hand.state.Over() {
		return
	}
	if e.hand.next = Accept; e.hand.unheard != None {
		e.again(now)
	}
}

// Arrival is a frame of data, an acknowledgement, or a close that came.
type Arrival struct {
	Kind    Kind
	Ack     uint32
	Verdict Verdict // of data and close
	Expects uint32  // what the Receiver expects afterwards
	Bytes   int     // what is owed for it
	Asks    bool    // for an acknowledgement at once
}

// Arrived handles a frame that came. It returns false if no honest end could have sent it,
// because it acknowledges what was not sent.
func (e *End) Arrived(a Arrival, now time.Time) (ok bool) {
	if e.hand.state == Opening {
		return true // the answer to open was lost, or is late; this comes again
	}
	e.hand.unheard = None
	ok = true
	if !e.hand.state.Over() {
		var closed bool
		if closed, ok = e.Sender.acknowledged(a.Ack, now); closed {
			e.Abort()
		}
	}
	if a.Kind != Ack && a.Verdict != Gap {
		e.acks.owe(a.Expects, a.Bytes, a.Verdict == Duplicate || a.Kind == Close || a.Asks, now)
	}
	if a.Kind == Close && a.Verdict == Take {
		e.Abort()
	}
	return ok
}

// Disable ends what this end stores. What was stored before is sent, and then close.
func (e *End) Disable() {
	switch {
	case e.hand.state == Up:
		e.hand.become(Draining)
	case e.hand.state == Opening:
		e.Abort()
	}
}

// Close is Disable for an end that nothing refers to any more, so that it must not wait for
// its other end for ever.
func (e *End) Close(now time.Time) {
	switch {
	case e.hand.state == Opening:
		e.Abort()
		e.hand.become(Closed)
	case e.hand.state == Ended:
		e.hand.become(Closed)
	case e.hand.state.MayBecome(Lingering):
		e.hand.become(Lingering)
		e.hand.at = now.Add(LingerFor)
	}
}

// Abort drops what was to be sent, since no process would get it.
func (e *End) Abort() {
	switch {
	case e.hand.state == Lingering:
		e.hand.become(Closed)
	case e.hand.state.MayBecome(Ended):
		e.hand.become(Ended)
	}
	e.Sender.clear()
}

// Finish puts close behind all that is kept, if the End is leaving. The caller has nothing
// more to be sent before it. It reports whether close is new there.
func (e *End) Finish(now time.Time) bool {
	return e.hand.state.Leaving() && e.Sender.finish(now)
}

// Restart has all that is not acknowledged sent again, by a new way.
func (e *End) Restart(now time.Time) {
	if !e.hand.state.Over() {
		e.Sender.shorten()
		e.again(now)
	}
}

// again has all that is not acknowledged sent again. Before it comes the handshake, because
// frames that overtake that on a new way are lost.
func (e *End) again(now time.Time) {
	if e.hand.unheard != None {
		e.hand.next = e.hand.unheard
	}
	e.Sender.again(now)
}

// Probe finds out whether the other end is still there, by a frame that it must acknowledge.
// Frames that are kept serve as well, and are sent again at once if that would be late.
func (e *End) Probe(now time.Time) {
	switch {
	case e.hand.state.Over():
	case e.hand.state == Up && e.Kept() == 0:
		e.Sender.Ask(now)
	case e.Sender.shorten():
		e.again(now)
	}
}

// Deadline returns when Expire is to be called, zero for never. It is later than the time
// of the last call of Expire.
func (e *End) Deadline() time.Time {
	at := e.acks.deadline()
	if e.hand.state.Over() {
		return at
	}
	return earlier(at, earlier(e.hand.deadline(), e.Sender.deadline()))
}

// earlier returns the earlier of two times. Zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Expire does what is due: open is said again, frames are sent again, lingering ends, a
// delayed acknowledgement waits no longer.
func (e *End) Expire(now time.Time) {
	e.acks.due(now)
	switch {
	case e.hand.state == Opening && !now.Before(e.hand.at):
		e.hand.next, e.hand.at = Open, now.Add(OpenEvery)
	case e.hand.state == Lingering && !now.Before(e.hand.at):
		e.Abort()
	case !e.hand.state.Over() && e.Sender.expire(now):
		e.again(now)
	}
}
