package flowctl

import (
	"fmt"
	"slices"

	"github.com/ntbnet/ntbnet/internal/testing/explore"
)

// fault is a mistake that a step makes in a world of tests.
type fault string

// The planted faults. Each is found by seeds and by the exploration of small cases, or these
// would find nothing else either.
const (
	noFault     fault = ""
	takesMore   fault = "credit for more than was sent is taken"
	takesLess   fault = "credit for less than before is taken"
	doesNotWrap fault = "positions are compared as if they did not wrap"
	returnsSoon fault = "what was sent is returned before it is read"
	returnsMore fault = "what was read is returned twice"
	neverDue    fault = "credit is never due"
	unsigned    fault = "a limit below what is under way gives room"
	uncounted   fault = "what is sent beyond the limit is not counted"
)

var faults = []fault{takesMore, takesLess, doesNotWrap, returnsSoon, returnsMore, neverDue, unsigned, uncounted}

// word is a credit word under way: as the sender gets it, and as a number that does not wrap.
type word struct {
	pos   Pos
	count uint64
}

// world is a sender and a receiver with the queue between them. The counts of bytes do not
// wrap. All that happens is a call of a method.
type world struct {
	fault fault
	size  int
	limit int
	start uint64 // all counts begin there
	send  Send
	recv  Recv

	produced, credited, consumed, returned uint64

	words    []word // under way, in order
	deceived bool   // a word was taken that the receiver did not send
	left     budget
	trace    explore.Trace
	wrong    string // the first thing that may not happen
}

// budget is how much may still happen in a small case.
type budget struct{ sends, bytes, limits, lies int }

func newWorld(fl fault, size int, start Pos) *world {
	w := &world{fault: fl, size: size, limit: size, send: NewSend(size), recv: NewRecv(size)}
	w.send.produced, w.send.credited, w.recv.consumed, w.recv.returned = start, start, start, start
	w.start = 1<<32 + uint64(start) // what is less than the start is no less than 0
	w.produced, w.credited, w.consumed, w.returned = w.start, w.start, w.start, w.start
	return w
}

func (w *world) fail(format string, args ...any) {
	if w.wrong == "" {
		w.wrong = fmt.Sprintf(format, args...)
	}
}

// did notes what happened, and compares both accounts with the counts.
func (w *world) did(what string, args ...any) bool {
	w.trace.Note(what, args...)
	owed := w.consumed - w.returned
	switch {
	case w.send.Outstanding() != int(w.produced-w.credited):
		w.fail("%d bytes are outstanding, want %d", w.send.Outstanding(), w.produced-w.credited)
	case w.send.Room() != w.limit-w.send.Outstanding():
		w.fail("room for %d bytes, want %d", w.send.Room(), w.limit-w.send.Outstanding())
	case w.send.Outstanding() > w.size:
		w.fail("%d bytes are under way in a queue of %d", w.send.Outstanding(), w.size)
	case w.recv.Owed() != int(owed):
		w.fail("%d bytes are owed, want %d", w.recv.Owed(), owed)
	case w.recv.Due() != (owed >= uint64(w.size/4)):
		w.fail("of a queue of %d bytes %d are owed, and due is %v", w.size, owed, w.recv.Due())
	case !w.deceived && w.produced-w.consumed > uint64(w.size):
		w.fail("%d bytes are not read in a queue of %d", w.produced-w.consumed, w.size)
	}
	return true
}

// room returns how many bytes may be sent.
func (w *world) room() int {
	if w.fault == unsigned && w.send.Room() < 0 {
		return w.size
	}
	return w.send.Room()
}

// produce sends n bytes, if there is room.
func (w *world) produce(n int) bool {
	if n > w.room() {
		return false
	}
	w.send.Produce(n)
	w.produced += uint64(n)
	return w.did("produce", n)
}

// exceed sends n bytes from the reserve, beyond the limit if need be, but not beyond the
// queue.
func (w *world) exceed(n int) bool {
	if n > w.size-w.send.Outstanding() {
		return false
	}
	if w.fault != uncounted || n <= w.send.Room() {
		w.send.Produce(n)
	}
	w.produced += uint64(n)
	return w.did("exceed", n)
}

// consume reads n bytes, if they have come.
func (w *world) consume(n int) bool {
	if uint64(n) > w.produced-w.consumed {
		return false
	}
	w.recv.Consume(n)
	w.consumed += uint64(n)
	return w.did("consume", n)
}

// giveBack puts credit on its way: if it is due, or all that is owed.
func (w *world) giveBack(all bool) bool {
	due := w.recv.Due()
	if !all && (!due || w.fault == neverDue) {
		return false
	}
	owed := w.recv.Owed()
	sent := word{w.recv.Return(), w.consumed}
	w.returned = w.consumed
	switch {
	case w.fault == returnsSoon:
		sent = word{w.send.produced, w.produced}
	case w.fault == returnsMore:
		sent = word{sent.pos + Pos(owed), sent.count + uint64(owed)}
	}
	w.words = append(w.words, sent)
	return w.did("give back", all)
}

// arrive has the oldest credit word arrive.
func (w *world) arrive() bool {
	if len(w.words) == 0 {
		return false
	}
	c := w.words[0]
	w.words = w.words[1:]
	if w.credit(c.pos) {
		w.credited = c.count
	} else if !w.deceived {
		w.fail("the sender refuses credit up to %d of %d", c.count-w.start, w.produced-w.start)
	}
	return w.did("arrive", c.pos)
}

// credit has the sender take a word.
func (w *world) credit(p Pos) bool {
	s := &w.send
	switch {
	case w.fault == takesMore && int32(p-s.produced) > 0,
		w.fault == takesLess && int32(p-s.credited) < 0:
		s.credited = p
		return true
	case w.fault == doesNotWrap && (p < s.credited || p > s.produced):
		return false
	}
	before := *s
	took := s.Credit(p)
	if !took && *s != before {
		w.fail("a word that is refused changes the account")
	}
	return took
}

// lie has a word arrive that the receiver did not send. It is taken only if an honest
// receiver could have sent it: if it is neither before what is credited nor behind what was
// sent.
func (w *world) lie(p Pos) bool {
	delta := uint64(uint32(p) - uint32(w.credited))
	honest := delta <= w.produced-w.credited
	if took := w.credit(p); took != honest {
		w.fail("a word %d bytes from what is credited, of %d outstanding, is taken: %v", delta, w.produced-w.credited, took)
		return w.did("lie", p)
	}
	if honest && delta > 0 {
		w.credited += delta
		w.deceived = true
	}
	return w.did("lie", p)
}

// setLimit lets at most n bytes be under way.
func (w *world) setLimit(n int) bool {
	w.limit = n
	w.send.SetLimit(n)
	return w.did("limit", n)
}

// lies returns words at the borders of what an honest receiver could send.
func (w *world) lies() []Pos {
	c, p := Pos(w.credited), Pos(w.produced)
	return []Pos{
		c, c + 1, p - 1, p, p + 1, c - 1, c - Pos(w.size), p + Pos(w.size),
		c + 1<<31, c - 1<<31 - 1, p + 1<<31, p + 1<<31 - 1, 0, ^Pos(0), 1 << 31,
	}
}

// Settle has all that was sent be read, and all credit arrive.
func (w *world) Settle() {
	w.consume(int(w.produced - w.consumed))
	w.giveBack(false)
	for w.arrive() {
	}
	if owed := w.send.Outstanding(); !w.deceived && owed >= max(1, w.size/4) {
		w.fail("all is read, and %d of %d bytes are not credited", owed, w.size)
	}
	w.giveBack(true)
	for w.arrive() {
	}
	if owed := w.send.Outstanding(); !w.deceived && owed != 0 {
		w.fail("all is given back, and %d bytes are not credited", owed)
	}
}

func (w *world) Wrong() string { return w.wrong }

func (w *world) Clone() *world {
	c := *w
	c.words = slices.Clone(w.words)
	return &c
}

// Key has all but the fault and the sizes, which are the same in all worlds of a case.
func (w *world) Key() string {
	return fmt.Sprint(w.limit, w.send, w.recv, w.produced, w.credited, w.consumed, w.returned, w.words, w.deceived, w.left)
}

func (w *world) Steps() []explore.Step[*world] {
	var steps []explore.Step[*world]
	add := func(do func(*world) bool, what ...any) {
		steps = append(steps, explore.Step[*world]{Name: fmt.Sprint(what...), Do: do})
	}
	if w.left.sends > 0 {
		for n := 1; n <= min(w.left.bytes, w.size); n++ {
			spend := func(w *world) { w.left.sends, w.left.bytes = w.left.sends-1, w.left.bytes-n }
			add(func(w *world) bool { spend(w); return w.produce(n) }, "produce ", n)
			if w.send.Room() < n {
				add(func(w *world) bool { spend(w); return w.exceed(n) }, "exceed ", n)
			}
		}
	}
	for n := 1; n <= int(w.produced-w.consumed); n++ {
		add(func(w *world) bool { return w.consume(n) }, "consume ", n)
	}
	if w.consumed > w.returned {
		add(func(w *world) bool { return w.giveBack(false) }, "give back")
		add(func(w *world) bool { return w.giveBack(true) }, "give all back")
	}
	add((*world).arrive, "arrive")
	if w.left.limits > 0 {
		for n := range w.size + 1 {
			add(func(w *world) bool { w.left.limits--; return w.setLimit(n) }, "limit ", n)
		}
	}
	if w.left.lies > 0 {
		for _, p := range w.lies() {
			add(func(w *world) bool { w.left.lies--; return w.lie(p) }, "lie ", p)
		}
	}
	return steps
}
