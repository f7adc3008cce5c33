package recorder

import "fmt"

// queue is a queue of records: "Records" of docs/protocol/stream.md. Positions count bytes from
// the beginning, and do not wrap.
type queue struct {
	endpoint *endpoint
	off      int // in the region
	size     uint64

	records  []record // whose room was taken, and which are not credited, in order
	head     uint64   // behind the last of them
	readable uint64   // behind the last data that the reader can have read
	credit   uint64
	stored   spans // payload behind what is published
	left     bool  // left by a move: no room is taken any more
}

// record is a record whose room was taken, by clearing the header behind it.
type record struct {
	from, to  uint64
	seq       uint32
	published bool
	kind      uint8
}

// Kinds of records.
const (
	kindInline = 1
	kindBulk   = 2
	kindPad    = 3
	kindFIN    = 4
	kindMove   = 5
	more       = 0x80 // set in the kind of inline or bulk

	reserve = 256
)

// free reports whether the memory may be granted again.
func (q *queue) free() bool { return q.endpoint.over() || q.left && q.firstOpen() == q.head }

// firstOpen returns the position of the first record that is not published.
func (q *queue) firstOpen() uint64 {
	for _, r := range q.records {
		if !r.published {
			return r.from
		}
	}
	return q.head
}

// at returns the first position from base on that has a given offset.
func (q *queue) at(base uint64, off int) uint64 {
	return base + (uint64(off)-base)%q.size
}

// store checks a store at st.off of the queue.
func (q *queue) store(st store) *claim {
	e := q.endpoint
	rec := e.mem.ledger.rec
	bad := func(format string, args ...any) *claim {
		rec.violated(e.log, format, args...)
		return nil
	}
	if e.stopped {
		return bad("a store to a queue of slot %d after STOPPED", e.slot)
	}
	e.stored = true
	early := e.queues[e.cur] != q && !q.left // payload is allowed
	switch {
	case early && (st.op == opStore64 || st.op == opPublish64):
		return bad("a header in a queue before the move to it")
	case st.op == opPublish32:
		return bad("a word of 4 bytes in a queue")
	case (st.op == opStore64 || st.op == opPublish64) && st.v == 0:
		if q.left {
			return bad("a store to a queue that was left")
		}
		if e.fin {
			return bad("a record behind the FIN")
		}
		return q.clear(st, bad)
	case st.op == opPublish64:
		return q.publish(st, bad)
	}
	return q.payload(st, bad)
}

// clear handles the store that takes the room of the next record: it clears the
// header behind that record.
func (q *queue) clear(st store, bad func(string, ...any) *claim) *claim {
	next := q.at(q.head+1, st.off)
	if st.off%64 != 0 || next-q.head > q.size {
		return bad("%v is no header", &st)
	}
	if next+64 > q.credit+q.size {
		return bad("no room for a record up to %d: %d is credited", next, q.credit)
	}
	q.endpoint.seq++
	q.records = append(q.records, record{from: q.head, to: next, seq: q.endpoint.seq})
	q.head = next
	return nil
}

// publish checks a header.
func (q *queue) publish(st store, bad func(string, ...any) *claim) *claim {
	var r *record
	for i := range q.records {
		if c := &q.records[i]; c.from%q.size == uint64(st.off) {
			r = c // the last record
		}
	}
	switch {
	case r == nil && q.head%q.size == uint64(st.off):
		return bad("header %#x before the next header was cleared", st.v)
	case r == nil:
		return bad("header %#x where no record begins", st.v)
	case r.published:
		return bad("the record at %d is published again", r.from)
	}
	n, kind := st.v>>32&0xffffff, uint8(st.v>>56)
	if kind&^more <= kindBulk {
		kind &^= more
	}
	size, payload := uint64(64), uint64(0)
	switch kind {
	case kindInline:
		size, payload = (8+n+63)&^63, 8
	case kindBulk:
		size, payload = 64+(n+63)&^63, 64
	case kindPad:
		size = 64 + n
	}
	switch {
	case uint32(st.v) != r.seq:
		return bad("header %#x of record %d", st.v, r.seq)
	case kind < kindInline || kind > kindMove || payload > 0 && n == 0 || kind == kindInline && n > 248:
		return bad("header %#x is none", st.v)
	case size != r.to-r.from:
		return bad("header %#x of a record of %d bytes: another header was cleared", st.v, r.to-r.from)
	case r.from/q.size != (r.to-1)/q.size || kind == kindPad && r.to%q.size != 0:
		return bad("header %#x at %d of a queue of %d", st.v, r.from, q.size)
	case kind <= kindPad && r.to+reserve > q.credit+q.size:
		return bad("header %#x takes the reserve: %d is credited of %d", st.v, q.credit, r.to)
	case payload > 0 && !q.stored.covers(r.from+payload, r.from+payload+n):
		return bad("header %#x at %d before its payload", st.v, r.from)
	}
	r.published, r.kind = true, kind
	q.stored.remove(r.from, r.to)
	q.passed()
	switch kind {
	case kindFIN:
		q.endpoint.fin = true
	case kindMove:
		q.move(bad)
	}
	return nil
}

// move continues in the queue granted last.
func (q *queue) move(bad func(string, ...any) *claim) {
	e := q.endpoint
	if e.cur == e.granted {
		bad("a move without a grant")
		return
	}
	q.left = true
	e.cur++
}

// passed advances readable to the first record that is not published.
func (q *queue) passed() {
	for _, r := range q.records {
		if !r.published {
			return
		}
		if r.kind <= kindPad {
			q.readable = max(q.readable, r.to)
		}
	}
}

// payload checks a store that neither publishes nor clears a header.
func (q *queue) payload(st store, bad func(string, ...any) *claim) *claim {
	first := q.firstOpen()
	from := q.at(first, st.off)
	to := from + uint64(st.n)
	if to > q.credit+q.size {
		return bad("%v: at %d, %d is credited, and %d published", &st, from, q.credit, first)
	}
	if q.left && to > q.head {
		return bad("a store to a queue that was left")
	}
	for _, r := range q.records {
		if r.published && from < r.to && r.from < to {
			return bad("%v: the record at %d is published", &st, r.from)
		}
	}
	q.stored.add(from, to)
	return nil
}

// credited handles credit for what the owner of e has read. It returns what is
// wrong, or "".
func (e *endpoint) credited(v uint64) string {
	if e == nil {
		return "the connection is not open"
	}
	q := e.queues[uint32(v>>32)]
	if q == nil || q != e.queues[e.cur] && !q.left {
		return "for a queue that is not written"
	}
	n := q.credit + uint64(uint32(v)-uint32(q.credit))
	if n > q.readable {
		return fmt.Sprintf("%d of %d bytes that were written", n, q.readable)
	}
	for len(q.records) > 0 && q.records[0].to <= n {
		q.records = q.records[1:]
	}
	if len(q.records) > 0 && q.records[0].from < n {
		return "for part of a record"
	}
	q.credit = n
	return ""
}
