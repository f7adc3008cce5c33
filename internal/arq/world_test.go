package arq

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/explore"
)

// fault is a mistake that a step makes in a world of tests.
type fault string

// The planted faults. Each is found by the exploration of small cases, or it would find
// nothing else either.
const (
	noFault         fault = ""
	takesGaps       fault = "a receiver takes a frame although one before it is missing"
	takesTwice      fault = "a receiver takes a frame that came again"
	forgetsToResend fault = "a sender does not send again what was lost"
	acksTooMuch     fault = "an acknowledgement is of one frame more than came"
	neverAcksAlone  fault = "nothing is acknowledged but by frames of data"
	ignoresRepeats  fault = "what came again is not acknowledged again"
	closesEarly     fault = "close is taken although data before it is missing"
	asksOnce        fault = "open is not said again"
	answersOnce     fault = "accept is not said again"
	renumbers       fault = "what is sent again gets new numbers"
)

var faults = []fault{
	takesGaps, takesTwice, forgetsToResend, acksTooMuch, neverAcksAlone, ignoresRepeats,
	closesEarly, asksOnce, answersOnce, renumbers,
}

// packet is a frame under way.
type packet struct {
	to    int // side
	reset bool
	f     Frame
}

// asked is a frame that asks for an acknowledgement: the number behind it, and how much was stored before.
type asked struct {
	end    uint32
	stored int
}

// side is one end, and what a test knows of it.
type side struct {
	end    End
	recv   Receiver
	made   bool   // the answerer begins with the first open
	gone   bool   // closed and forgotten: what comes is answered with a reset
	left   bool   // Disable or Close was called
	cut    bool   // it ended without the other end's agreement: by a reset, or since lingering has a limit
	stored []byte // what was stored here while it was connected
	got    []byte // what came
	asked  []asked
}

// world is two ends and the way between them. All that happens is a call of a method.
type world struct {
	fault  fault
	start  uint32 // the sequence number before the first
	size   int    // of a frame's body
	config Config
	now    time.Time
	sides  [2]*side // the asker first
	flight []packet
	trace  explore.Trace
	wrong  string // the first thing that may not happen
}

func newWorld(fl fault, start uint32, size int, c Config) *world {
	w := &world{fault: fl, start: start, size: size, config: c, now: time.Unix(1, 0)}
	for i := range w.sides {
		w.sides[i] = &side{recv: Receiver{taken: start}}
	}
	w.begin(0, Asker(w.memory(), w.now))
	return w
}

func (w *world) memory() Config {
	c := w.config
	c.Buf = make([]byte, len(c.Buf))
	return c
}

func (w *world) begin(i int, e End) {
	s := w.sides[i]
	s.end, s.made = e, true
	s.end.base, s.end.acks.next = w.start+1, w.start+1
}

// clone returns a copy that shares nothing that changes.
func (w *world) clone() *world {
	c := *w
	for i, s := range w.sides {
		d := *s
		d.end.queue.buf = slices.Clone(s.end.queue.buf)
		d.end.queue.frames = slices.Clone(s.end.queue.frames)
		d.stored, d.got, d.asked = slices.Clone(s.stored), slices.Clone(s.got), slices.Clone(s.asked)
		c.sides[i] = &d
	}
	c.flight = slices.Clone(w.flight)
	return &c
}

func (w *world) fail(format string, args ...any) {
	if w.wrong == "" {
		w.wrong = fmt.Sprintf(format, args...)
	}
}

// note adds what happened to the trace.
func (w *world) note(what string, args ...any) {
	w.trace.Note(what, w.now.UnixNano(), args)
}

// store stores n bytes at side i, if there is room. It reports whether it did.
func (w *world) store(i, n int) bool {
	s := w.sides[i]
	if !s.made || s.end.State() != Up {
		return false
	}
	e := &s.end
	if !e.Reopen(n, w.size) && !e.Begin(w.size) {
		return false
	}
	for b := e.Extend(n); len(b) > 0; b = b[1:] {
		b[0] = byte(len(s.stored) + 1)
		s.stored = append(s.stored, b[0])
	}
	e.EndFrame(w.now)
	w.note("store", i, n)
	return true
}

// ask has a frame ask behind what side i has stored.
func (w *world) ask(i int) bool {
	s := w.sides[i]
	if !s.made || s.end.State() != Up || !s.end.Ask(w.now) {
		return false
	}
	s.asked = append(s.asked, asked{s.end.End(), len(s.stored)})
	w.note("ask", i)
	return true
}

// send puts the next frame of side i on its way, if there is one.
func (w *world) send(i int) bool {
	s := w.sides[i]
	if !s.made {
		return false
	}
	s.end.Finish(w.now)
	f, ok := s.end.Next(w.now)
	if !ok {
		return false
	}
	again := f.Kind == Data && s.end.next < s.end.high
	s.end.Sent(&f, w.now)
	f.Body = slices.Clone(f.Body)
	switch {
	case w.fault == neverAcksAlone && f.Kind == Ack:
		return true
	case w.fault == acksTooMuch && f.Ack != w.start+1:
		f.Ack++
	case w.fault == renumbers && again:
		f.Seq = s.end.base + uint32(s.end.high)
	}
	w.flight = append(w.flight, packet{to: 1 - i, f: f})
	w.note("send", i, f)
	w.forget(i)
	return true
}

// forget forgets an end that is closed and has said all.
func (w *world) forget(i int) {
	s := w.sides[i]
	if s.end.State() == Closed && s.end.acks.state == ackNone {
		s.gone = true
	}
}

// lose loses frame j of those under way.
func (w *world) lose(j int) {
	w.note("lose", w.flight[j])
	w.flight = slices.Delete(w.flight, j, j+1)
}

// deliver has frame j arrive. If twice is true, it stays under way as well.
func (w *world) deliver(j int, twice bool) {
	p := w.flight[j]
	if !twice {
		w.flight = slices.Delete(w.flight, j, j+1)
	}
	w.note("deliver", p, twice)
	w.arrive(p)
	s := w.sides[p.to]
	if other := w.sides[1-p.to]; !bytes.HasPrefix(other.stored, s.got) {
		w.fail("side %d got %v of %v", p.to, s.got, other.stored)
	}
	if s.made {
		w.forget(p.to)
	}
}

func (w *world) arrive(p packet) {
	s := w.sides[p.to]
	e := &s.end
	switch {
	case p.f.Kind == Open && !s.made:
		w.begin(p.to, Answerer(w.memory()))
	case p.f.Kind == Open && s.gone: // asked too late
	case !s.made:
	case p.reset:
		s.cut = true
		e.Abort()
	case s.gone:
		if p.f.Kind != Ack {
			w.flight = append(w.flight, packet{to: 1 - p.to, reset: true})
		}
	case p.f.Kind == Open && w.fault == answersOnce:
	case p.f.Kind == Open:
		e.OpenedAgain(w.now)
	case p.f.Kind == Accept:
		e.Accepted(w.config.AckAt)
	default:
		w.take(p.to, &p.f)
	}
}

// take has a frame of data, an acknowledgement, or close arrive.
func (w *world) take(i int, f *Frame) {
	s, other := w.sides[i], w.sides[1-i]
	if s.end.State() == Opening {
		return
	}
	a := Arrival{Kind: f.Kind, Ack: f.Ack, Asks: f.Asks}
	if f.Kind != Ack {
		a.Verdict, a.Bytes = s.recv.Judge(f.Seq), 1+len(f.Body)
		switch {
		case w.fault == takesGaps && a.Verdict == Gap:
			a.Verdict, s.recv.taken = Take, f.Seq-1
		case w.fault == closesEarly && f.Kind == Close:
			a.Verdict = Take
		case w.fault == takesTwice && a.Verdict == Duplicate:
			s.got = append(s.got, f.Body...)
		case w.fault == ignoresRepeats && a.Verdict == Duplicate:
			return
		}
		if a.Verdict == Take {
			s.recv.Took()
			s.got = append(s.got, f.Body...)
		}
		a.Expects = s.recv.Expects()
	}
	if !s.end.Arrived(a, w.now) {
		w.fail("side %d refuses acknowledgement %d", i, f.Ack)
	}
	if f.Asks && a.Verdict != Gap && s.end.acks.state != ackDue {
		w.fail("side %d does not acknowledge at once", i)
	}
	for _, q := range s.asked {
		if int32(s.end.Acknowledged()-q.end) >= 0 && len(other.got) < q.stored && !s.end.State().Over() {
			w.fail("what side %d asked for is acknowledged, and has not come", i)
		}
	}
}

// restart has all sent again by side i, as by a new way.
func (w *world) restart(i int) bool {
	s := w.sides[i]
	if !s.made || s.end.State().Over() {
		return false
	}
	s.end.Restart(w.now)
	w.note("restart", i)
	return true
}

// leave disables side i, or closes it.
func (w *world) leave(i int, closes bool) bool {
	s := w.sides[i]
	switch {
	case !s.made || s.end.State() == Opening && !closes || s.end.State() == Closed:
		return false
	case closes:
		s.end.Close(w.now)
	case s.end.State() == Up:
		s.end.Disable()
	default:
		return false
	}
	s.left = true
	w.note("leave", i, closes)
	w.forget(i)
	return true
}

// pass lets time pass until the next deadline, if there is one, and has that handled.
func (w *world) pass() bool {
	var at time.Time
	for _, s := range w.sides {
		if s.made && !s.gone {
			at = earlier(at, s.end.Deadline())
		}
	}
	if at.IsZero() {
		return false
	}
	if at.After(w.now) {
		w.now = at
	}
	w.note("pass")
	for i, s := range w.sides {
		if !s.made || s.gone {
			continue
		}
		was, said, next := s.end.State(), s.end.hand.next, s.end.next
		s.end.Expire(w.now)
		s.cut = s.cut || was != s.end.State()
		switch {
		case w.fault == asksOnce && s.end.hand.state == Opening:
			s.end.hand.next = said
		case w.fault == forgetsToResend:
			s.end.next = next
		}
		if at := s.end.Deadline(); !at.IsZero() && !at.After(w.now) {
			w.fail("side %d has a deadline that has passed", i)
		}
		w.forget(i)
	}
	return true
}

// probe has an end find out that the other one is gone, as by a link state, or by what its owner
// stores. It reports whether there is one.
func (w *world) probe() bool {
	for i, s := range w.sides {
		if s.made && w.sides[1-i].gone && !s.end.State().Over() && s.end.Kept() == 0 {
			s.end.Probe(w.now)
			w.note("probe", i)
			return true
		}
	}
	return false
}

// settle has everything that is under way arrive, and all that is due happen, until nothing
// is left. From then on nothing is lost. It checks that nothing is missing in the end.
func (w *world) settle() {
	for range 300 {
		busy := false
		for i := range w.sides {
			for w.send(i) {
				busy = true
			}
		}
		for len(w.flight) > 0 {
			w.deliver(0, false)
			busy = true
		}
		if busy || w.pass() || w.probe() {
			continue
		}
		break
	}
	for i, s := range w.sides {
		other := w.sides[1-i]
		switch {
		case w.wrong != "" || !s.made:
			continue
		case !s.left && !other.left && s.end.State() != Up:
			w.fail("side %d is %v, and nobody has left", i, s.end.State())
		case (s.left || other.left) && !s.end.State().Over():
			w.fail("side %d is %v, and should have ended", i, s.end.State())
		case s.end.Kept() > 0 || s.end.Deadline() != time.Time{}:
			w.fail("side %d keeps %d frames for ever", i, s.end.Kept())
		case !other.left && !s.cut && !bytes.Equal(other.got, s.stored):
			w.fail("side %d has stored %v, and %v came", i, s.stored, other.got)
		}
	}
}

// key returns the state of the world in a form that is equal for states that are. What was
// at the beginning of time counts as now, as far as that makes no difference.
func (w *world) key() string {
	var b []byte
	num := func(v ...int) {
		for _, n := range v {
			b = binary.AppendVarint(b, int64(n))
		}
	}
	bit := func(v ...bool) {
		for _, t := range v {
			if t {
				b = append(b, 1)
			} else {
				b = append(b, 0)
			}
		}
	}
	since := func(t time.Time) {
		if t.IsZero() {
			num(-1)
		} else {
			num(int(w.now.Sub(t)))
		}
	}
	frame := func(f *Frame) {
		num(int(f.Kind), int(f.Seq-w.start), int(f.Ack-w.start), len(f.Body))
		bit(f.Asks)
		b = append(b, f.Body...)
	}
	for _, s := range w.sides {
		bit(s.made, s.gone, s.left, s.cut)
		num(len(s.stored), len(s.got), len(s.asked), int(s.recv.taken-w.start))
		if !s.made {
			continue
		}
		e := &s.end
		num(int(e.hand.state), int(e.hand.next), int(e.hand.unheard), int(e.base-w.start), e.next, e.high, e.queue.count, int(e.timeout))
		if at := e.hand.deadline(); !at.IsZero() {
			since(at)
		}
		if e.high > 0 {
			since(e.progress)
		}
		num(int(e.trip.limit), int(e.trip.mean), e.queue.tail, e.queue.oldest())
		bit(e.trip.measured)
		if since(e.trip.start); !e.trip.start.IsZero() {
			num(int(e.trip.seq - w.start))
		}
		num(int(e.acks.next-w.start), e.acks.owed, int(e.acks.state))
		since(e.acks.deadline())
		for i := range e.queue.count {
			k := e.queue.at(i)
			num(int(k.kind), k.n)
			bit(k.asks)
			b = append(b, e.queue.body(k)...)
		}
	}
	var flight []string
	for _, p := range w.flight {
		was := len(b)
		num(p.to)
		bit(p.reset)
		frame(&p.f)
		flight = append(flight, string(b[was:]))
		b = b[:was]
	}
	slices.Sort(flight)
	for _, p := range flight {
		b = append(b, p...)
	}
	return string(b)
}
