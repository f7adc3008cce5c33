package bounce

import (
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/ntbnet/ntbnet/flowctl"
	"github.com/ntbnet/ntbnet/internal/testing/explore"
	"github.com/ntbnet/ntbnet/ntb"
)

// fault is a mistake that a step makes in a world of tests.
type fault string

// The planted faults. Each is found by seeds and by the exploration of small cases, or these
// would find nothing else either.
const (
	noFault       fault = ""
	headerFirst   fault = "a header arrives before its payload"
	noClear       fault = "the header behind a record is not cleared"
	clearsLate    fault = "the header behind a record is cleared after the record is published"
	takesReserve  fault = "data takes the room of a FIN and a move"
	creditsUnread fault = "credit is of a record that is not read to its end"
	creditsLent   fault = "credit is of what is lent"
	creditsOld    fault = "credit of a queue that was left counts in the next"
	freesEarly    fault = "a queue is freed when the writer leaves it"
	grantsDirty   fault = "a queue is granted with an old header"
	forgetsGrant  fault = "the queue that was granted first is forgotten"
)

var faults = []fault{
	headerFirst, noClear, clearsLate, takesReserve, creditsUnread, creditsLent, creditsOld,
	freesEarly, grantsDirty, forgetsGrant,
}

// stored is a store of the writer that has not arrived.
type stored struct {
	at      int // in the region
	data    string
	publish bool // it arrives behind all stores before it
}

// controlWord is a word of the reader that has not arrived: credit or a grant.
type controlWord struct {
	grant bool
	word  uint64
}

// world is one direction of a connection: a writer, a reader, the reader's memory, and what
// is under way between them. Stores arrive in any order that the contract of ntb.Window
// allows. All that happens is a call of a method.
//
// It stands for the halves of a Pair, which wait, and for the granter: which word is taken
// when, and what may be called while a lease is out.
type world struct {
	fault  fault
	mem    []byte // what the writer may store to
	grain  int    // larger stores arrive in several parts, which end at multiples of it
	blocks *blocks
	tx     sender
	rx     rx
	granted
	stores []stored // in the order in which the writer made them
	late   []stored // clears that a fault keeps back
	words  []controlWord

	// What the writer has of the reader: the words that arrived, and those that it took.
	credit, grant       uint64
	creditSeen, grantOf uint64

	// What a test knows.
	written, got int      // bytes of the stream
	returned     returned // by the reader last
	finished     bool     // the FIN is published
	ended        bool     // the reader has found the end
	moves        int
	lent         []byte // by the reader, from lentAt of the region on; nil for none
	lentAt       int
	room         []int // where the writer has reserved how much, or nil

	engine *engine // nil without one
	left   budget
	trace  explore.Trace
	wrong  string // the first thing that may not happen
}

// granted is the granter's account.
type granted struct {
	gen  uint32 // of the queue granted last
	size int    // of it
}

// returned is how much of a queue the reader has returned.
type returned struct {
	gen uint32 // of the queue
	n   int
}

// content returns n bytes of the stream from byte i on.
func content(i, n int) []byte {
	p := make([]byte, n)
	for k := range p {
		x := uint32(i+k+1) * 2654435761
		p[k] = byte(x>>24) | 1
	}
	return p
}

// newWorld returns a world whose reader has memory for that many small queues. The writer has one of
// them.
func newWorld(fl fault, queues, grain int, gen, seq uint32) *world {
	w := &world{fault: fl, mem: ntb.AlignedBytes(queues * minQueue), grain: grain, blocks: newBlocks(0, queues*minQueue)}
	for i := range w.mem {
		w.mem[i] = byte(i%7) + 1 // what others left
	}
	q, _ := w.alloc(minQueue)
	w.rx.free = w.release
	w.rx.gen, w.tx.gen = gen-1, gen-1
	w.rx.start(q)
	w.rx.seq = seq
	w.tx.init(w.window(q.off, minQueue), maxQueue, nil)
	w.tx.seq = seq
	w.granted = granted{gen, minQueue}
	w.grant = grantWord(gen, q.off, minQueue)
	w.grantOf = w.grant
	return w
}

func (w *world) fail(format string, args ...any) {
	if w.wrong == "" {
		w.wrong = fmt.Sprintf(format, args...)
	}
}

// did notes what happened, and checks what holds at any time.
func (w *world) did(what string, args ...any) bool {
	w.trace.Note(what, args...)
	if n := w.tx.send.Outstanding(); n > w.tx.size {
		w.fail("%d bytes are under way in a queue of %d", n, w.tx.size)
	}
	if n := w.unread(); n > w.tx.size-line {
		w.fail("%d bytes are not read in a queue of %d: too little is left for a header behind them", n, w.tx.size)
	}
	return true
}

// unread returns how many bytes of the writer's queue the reader has not read.
func (w *world) unread() int {
	n := w.tx.done
	if w.rx.gen == w.tx.gen {
		if n -= w.rx.recv.Owed(); w.returned.gen == w.rx.gen {
			n -= w.returned.n
		}
	}
	return n
}

func (w *world) window(off, size int) ntb.Window {
	all := ntb.SinkWindow(w, len(w.mem))
	return all.Slice(off, size)
}

// The methods of ntb.Sink keep what the writer stores under way.

func (w *world) Store(off int, p []byte) {
	for len(p) > 0 {
		n := min(len(p), w.grain-off%w.grain)
		w.stores = append(w.stores, stored{at: off, data: string(p[:n])})
		off, p = off+n, p[n:]
	}
}

func (w *world) Store64(off int, v uint64) {
	s := stored{at: off, data: word(v)}
	switch w.fault {
	case noClear:
	case clearsLate:
		w.late = append(w.late, s)
	default:
		w.stores = append(w.stores, s)
	}
}

func (w *world) Publish(off int, v uint64, width int) {
	w.stores = append(w.stores, stored{at: off, data: word(v)[:width], publish: true})
	w.stores = append(w.stores, w.late...)
	w.late = nil
}

func (w *world) Update(off int, v uint64, width int) { w.Publish(off, v, width) }

func word(v uint64) string { return string(binary.LittleEndian.AppendUint64(nil, v)) }

// arrives reports whether store j may arrive next: no earlier one of the same bytes is under
// way, and before a publish, none at all.
func (w *world) arrives(j int) bool {
	s := w.stores[j]
	if s.publish && w.fault != headerFirst {
		return j == 0
	}
	return !slices.ContainsFunc(w.stores[:j], func(e stored) bool {
		return e.at < s.at+len(s.data) && s.at < e.at+len(e.data)
	})
}

// deliver has store j arrive, if it may.
func (w *world) deliver(j int) bool {
	if !w.arrives(j) {
		return false
	}
	s := w.stores[j]
	copy(w.mem[s.at:], s.data)
	w.stores = slices.Delete(w.stores, j, j+1)
	return w.did("deliver", s.at, len(s.data))
}

// alloc allocates a queue. Its first header is clear.
func (w *world) alloc(size int) (queue, bool) {
	off, ok := w.blocks.alloc(size)
	if !ok {
		return queue{}, false
	}
	q := w.queue(off, size)
	if w.fault != grantsDirty {
		ntb.Clear64(q.mem, 0)
	}
	return q, true
}

func (w *world) queue(off, size int) queue { return queue{off, w.mem[off : off+size : off+size]} }

// release frees a queue that the reader has left.
func (w *world) release(q queue) {
	if w.fault != freesEarly {
		w.blocks.release(q.off, len(q.mem))
	}
}

// writes reports whether a call of the writer may begin.
func (w *world) writes() bool { return !w.finished && w.room == nil }

// put writes up to n bytes.
func (w *world) put(n int) bool {
	if !w.writes() {
		return false
	}
	before := w.tx.seq
	if w.fault == takesReserve {
		w.tx.send.SetLimit(w.tx.send.Room() + w.tx.send.Outstanding() + reserve)
	}
	k := w.tx.put(content(w.written, n), n)
	w.written += k
	w.tx.limit(w.tx.max)
	if k > 0 && w.tx.send.Room() < reserve {
		w.fail("data leaves room for %d bytes, want %d", w.tx.send.Room(), reserve)
	}
	return w.tx.seq != before && w.did("put", n, k)
}

// reserve begins a lease of the writer, of up to n bytes.
func (w *world) reserve(n int) bool {
	if !w.writes() {
		return false
	}
	before := w.tx.seq
	if off, k := w.tx.reserve(n); k > 0 {
		w.room = []int{off, k}
	} else if w.tx.seq == before {
		return false
	}
	return w.did("reserve", n, w.room)
}

// commit ends the lease of the writer: up to n bytes of it are written.
func (w *world) commit(n int) bool {
	if w.room == nil {
		return false
	}
	if n = min(n, w.room[1]); n > 0 {
		w.tx.win.Write(w.room[0], content(w.written, n))
		w.tx.commit(n, n)
		w.written += n
	}
	w.room = nil
	return w.did("commit", n)
}

// fin ends the stream.
func (w *world) fin() bool {
	if !w.writes() {
		return false
	}
	w.tx.fin()
	w.finished = true
	return w.did("fin")
}

// limit lets at most n bytes be under way.
func (w *world) limit(n int) bool {
	w.tx.limit(n)
	return w.did("limit", n)
}

// look has the writer take the words that have arrived.
func (w *world) look() bool {
	if !w.writes() || w.credit == w.creditSeen && w.grant == w.grantOf {
		return false
	}
	w.creditSeen, w.grantOf = w.credit, w.grant
	taken := w.tx.credit(w.credit)
	if w.fault == creditsOld && uint32(w.credit>>32) != w.tx.gen {
		taken = w.tx.send.Credit(flowctl.Pos(w.credit))
	}
	if !taken {
		w.fail("credit %#x is refused", w.credit)
	}
	if w.tx.precedes(w.grant) {
		old := w.queue(w.tx.win.Offset(), w.tx.size)
		off, size := queueOf(w.grant)
		w.tx.move(w.window(int(off), int(size)))
		w.moves++
		if w.fault == freesEarly {
			w.blocks.release(old.off, len(old.mem))
		}
	}
	return w.did("look")
}

// reads reports whether a call of the reader may begin.
func (w *world) reads() bool { return w.lent == nil }

// read reads up to n bytes.
func (w *world) read(n int) bool {
	if !w.reads() {
		return false
	}
	before := w.reader()
	p := make([]byte, n)
	k, err := w.rx.get(p)
	w.check(p[:k], err)
	w.got += k
	if k == 0 && w.reader() == before {
		return false
	}
	return w.did("read", n, k)
}

// check compares what the reader got, and how, with what was written.
func (w *world) check(p []byte, err error) {
	switch {
	case w.got+len(p) > w.written:
		w.fail("%d bytes are read, of %d", w.got+len(p), w.written)
	case string(p) != string(content(w.got, len(p))):
		w.fail("wrong bytes at %d: %x, want %x", w.got, p, content(w.got, len(p)))
	case err == io.EOF:
		if w.ended = true; !w.finished || w.got+len(p) != w.written {
			w.fail("the end is found after %d bytes of %d", w.got+len(p), w.written)
		}
	case err != nil:
		w.fail("%v", err)
	}
}

// reading is what a call of the reader may change, but for leases.
type reading struct {
	off, pos, at, left, size int
	seq, gen                 uint32
	recv                     flowctl.Recv
	fin                      bool
}

func (w *world) reader() reading {
	r := &w.rx
	return reading{r.off, r.pos, r.at, r.left, r.size, r.seq, r.gen, r.recv, r.fin}
}

// lend begins a lease of the reader.
func (w *world) lend() bool {
	if !w.reads() {
		return false
	}
	before := w.reader()
	b, err := w.rx.view()
	w.check(b, err)
	if len(b) == 0 {
		return w.reader() != before && w.did("lend", 0)
	}
	w.lent, w.lentAt = b, w.rx.off+w.rx.at
	if w.fault == creditsLent {
		word := w.rx.credit()
		w.returned = returned{w.rx.gen, int(uint32(word))}
		w.words = append(w.words, controlWord{word: word + uint64(w.rx.size)})
	}
	return w.did("lend", len(b))
}

// discard ends the lease of the reader: up to n bytes of it count as read.
func (w *world) discard(n int) bool {
	if w.lent == nil {
		return false
	}
	w.check(w.lent, nil) // it did not change meanwhile
	n = min(n, len(w.lent))
	w.lent = nil
	if n > 0 {
		w.rx.take(n)
		w.got += n
	}
	return w.did("discard", n)
}

// takeMoves follows a move that is next, as the link's goroutine does.
func (w *world) takeMoves() bool {
	if !w.reads() {
		return false
	}
	before := w.reader()
	w.rx.takeMoves()
	return w.reader() != before && w.did("take moves")
}

// giveBack puts credit on its way: if it is due, or all that is owed.
func (w *world) giveBack(all bool) bool {
	if !w.reads() || w.rx.recv.Owed() == 0 || !all && !w.rx.recv.Due() {
		return false
	}
	word := w.rx.credit()
	w.returned = returned{w.rx.gen, int(uint32(word))}
	if w.fault == creditsUnread && w.rx.left > 0 {
		word += uint64(w.rx.size)
	}
	w.words = append(w.words, controlWord{word: word})
	return w.did("give back", all)
}

// enlarge grants a queue of size bytes, if there is memory, and the writer is in the one that
// was granted before.
func (w *world) enlarge(size int) bool {
	if w.tx.gen != w.granted.gen {
		return false
	}
	q, ok := w.alloc(size)
	if !ok {
		return false
	}
	w.granted = granted{w.granted.gen + 1, size}
	if w.fault == forgetsGrant && !w.rx.granted.none() {
		w.rx.granted.take()
	}
	w.rx.granted.add(q)
	w.words = append(w.words, controlWord{true, grantWord(w.granted.gen, q.off, size)})
	return w.did("enlarge", size)
}

// arrive has the oldest word of the reader arrive.
func (w *world) arrive() bool {
	if len(w.words) == 0 {
		return false
	}
	if s := w.words[0]; s.grant {
		w.grant = s.word
	} else {
		w.credit = s.word
	}
	w.words = w.words[1:]
	return w.did("arrive")
}

// Settle ends the stream, has all arrive that is under way, and all that was written be read.
func (w *world) Settle() {
	w.commit(minQueue)
	w.discard(minQueue)
	w.quiesce()
	if !w.finished {
		for _, n := range []int{1, maxInline + 1} {
			was := w.written
			w.put(n)
			if w.written == was {
				w.fail("all is read, and there is no room for %d bytes", n)
			}
			w.quiesce()
		}
		w.fin()
		w.quiesce()
	}
	used := len(w.rx.mem)
	for !w.rx.granted.none() {
		used += len(w.rx.granted.take().mem) // the writer ended before it went there
	}
	switch {
	case w.got != w.written || !w.ended:
		w.fail("%d of %d bytes are read, in the end, and the end was found: %v", w.got, w.written, w.ended)
	case w.tx.win.Offset() != w.rx.off || w.tx.pos != (w.rx.pos+line)%w.tx.size || w.tx.seq != w.rx.seq:
		w.fail("the writer is behind record %d, %d of queue %d, and the reader at its FIN: %d, %d of %d",
			w.tx.seq, w.tx.pos, w.tx.win.Offset(), w.rx.seq, w.rx.pos, w.rx.off)
	case w.blocks.used != used:
		w.fail("%d bytes are used, want %d", w.blocks.used, used)
	}
}

// quiesce has things happen until nothing is left to happen.
func (w *world) quiesce() {
	for busy := true; busy && w.wrong == ""; {
		busy = w.engine.complete(nil)
		for len(w.stores) > 0 {
			busy = w.deliver(0)
		}
		for w.wrong == "" && w.read(512) {
			busy = true
		}
		busy = w.giveBack(true) || busy
		for w.arrive() {
			busy = true
		}
		busy = w.look() || busy
	}
}

func (w *world) Wrong() string { return w.wrong }

// Clone returns a copy of a world without an engine.
func (w *world) Clone() *world {
	c := &world{
		fault: w.fault, mem: ntb.AlignedBytes(len(w.mem)), grain: w.grain, granted: w.granted,
		stores: slices.Clone(w.stores), late: slices.Clone(w.late), words: slices.Clone(w.words),
		credit: w.credit, grant: w.grant, creditSeen: w.creditSeen, grantOf: w.grantOf,
		written: w.written, got: w.got, returned: w.returned, finished: w.finished, ended: w.ended, lentAt: w.lentAt, room: w.room,
		left: w.left, wrong: w.wrong,
	}
	copy(c.mem, w.mem)
	b := *w.blocks
	b.state = maps.Clone(b.state)
	for i := range b.free {
		b.free[i] = slices.Clone(b.free[i])
	}
	c.blocks = &b
	c.tx = w.tx
	c.tx.win = c.window(w.tx.win.Offset(), w.tx.size)
	r := &w.rx
	c.rx.queue = c.queue(r.off, len(r.mem))
	c.rx.pos, c.rx.seq, c.rx.gen, c.rx.recv = r.pos, r.seq, r.gen, r.recv
	c.rx.at, c.rx.left, c.rx.size, c.rx.fin = r.at, r.left, r.size, r.fin
	c.rx.free = c.release
	for _, q := range r.granted.list {
		c.rx.granted.add(c.queue(q.off, len(q.mem)))
	}
	if w.lent != nil {
		c.lent = c.mem[w.lentAt : w.lentAt+len(w.lent)]
	}
	return c
}

// Key has all but the counters of statistics.
func (w *world) Key() string {
	t := &w.tx
	var queues []int
	for _, q := range w.rx.granted.list {
		queues = append(queues, q.off, len(q.mem))
	}
	b := slices.Clone(w.mem)
	for _, s := range slices.Concat(w.stores, w.late) {
		b = fmt.Append(b, s.at, s.publish, len(s.data))
		b = append(b, s.data...)
	}
	b = fmt.Append(b, w.blocks.free, w.blocks.state, t.win.Offset(), t.size, t.pos, t.seq, t.kind, t.gen, t.send, t.max,
		w.reader(), queues, w.granted, len(w.late), w.words, w.credit, w.grant, w.creditSeen, w.grantOf,
		w.written, w.got, w.returned, w.finished, w.ended, len(w.lent), w.lentAt, w.room, w.left)
	return string(b)
}
