package bounce

import (
	"encoding/binary"

	"github.com/ntbnet/ntbnet/flowctl"
	"github.com/ntbnet/ntbnet/ntb"
)

// tx is the writing end of one record queue. It never waits. The holder of the writer's
// lock owns all of it.
type tx struct {
	win  ntb.Window // the queue, in the peer's memory
	size int
	pos  int    // offset of the next header
	seq  uint32 // of the last record written
	kind kind   // of the record that reserve found room for
	gen  uint32 // of the queue: 1, then one more with each move
	send flowctl.Send
	done int // bytes that this queue took since it was granted
	// short is how often this queue was too small: waits for room in it, and records behind which more of a Write
	// was left than the queue is large.
	short int
	// maxInline is the largest payload of an inline record.
	maxInline int
	max       int                           // how many bytes may be under way, whatever the queue's size
	lines     *[maxInline + headerSize]byte // where a sealed record is made; nil before the first
	// clean is how many bytes in a row this queue took that the reader clears. From its size on, memory that is free is zero.
	clean int
	st    pathStats
}

// pathStats counts payload by the way it took.
type pathStats struct {
	inlineRecords, inlineBytes uint64
	mmioRecords, mmioBytes     uint64
	// Waits for room, by what would have helped.
	stallsFull, stallsLimit, stallsSmall uint64
}

// stalled counts a wait for room.
func (t *tx) stalled() {
	t.short++
	switch {
	case t.max < t.size:
		t.st.stallsLimit++
	case t.wantsLarger():
		t.st.stallsSmall++
	default:
		t.st.stallsFull++
	}
}

func (t *tx) init(win ntb.Window, limit, inline int) {
	t.max, t.maxInline = limit, inline
	t.start(win)
}

// start goes on at the beginning of an empty queue. Its owner has cleared the first
// header.
func (t *tx) start(win ntb.Window) {
	t.win, t.size, t.pos = win, win.Len(), 0
	t.gen++
	t.done, t.short, t.clean = 0, 0, 0
	t.send = flowctl.NewSend(t.size)
	t.limit(t.max)
}

// limit lets at most n bytes be under way.
func (t *tx) limit(n int) {
	t.max = n
	t.send.SetLimit(max(min(n, t.size), minQueue))
}

// wantsLarger reports whether a larger queue would help a Write that waits for
// room.
func (t *tx) wantsLarger() bool {
	return t.size < t.max && (t.size < bulkQueue || t.done >= bulkAfter)
}

// askAfter is how often a queue is too small until its writer asks for a larger one. A stream whose waits for room
// are all short, or that never waits, would otherwise stay in a small queue.
const askAfter = 8

// outgrown reports whether this queue has just been too small so often, or twice as often as when it last did, since a
// reader that had no memory then may have some now.
func (t *tx) outgrown() bool { return t.short >= askAfter && t.short&(t.short-1) == 0 }

// credit takes the reader's credit word. It reports false if no honest reader could have
// sent it. Credit for a queue that was left is late, not wrong.
func (t *tx) credit(word uint64) bool {
	return uint32(word>>32) != t.gen || t.send.Credit(flowctl.Pos(word))
}

// precedes reports whether a grant word is of the queue behind this one.
func (t *tx) precedes(grant uint64) bool { return uint32(grant>>40) == (t.gen+1)&0xffffff }

// room returns how many bytes of the queue data may take now.
func (t *tx) room() int { return t.send.Room() - reserve }

// putInline makes an inline record of p, for which reserve has found room. It
// stores the line with the header last and all at once. The reader polls that line,
// and would take it back from the writer between two stores.
func (t *tx) putInline(p []byte) {
	t.st.inlineRecords++
	t.st.inlineBytes += uint64(len(p))
	if t.win.Kind() == ntb.WriteCombining {
		t.putSealed(p)
		return
	}
	h := makeHeader(t.seq+1, len(p), kindInline)
	pos := t.advance(h)
	if len(p) > line-headerSize {
		t.win.Write(pos+line, p[line-headerSize:])
		p = p[:line-headerSize]
	}
	t.win.Write(pos+headerSize, p)
	t.win.Publish64(pos, uint64(h))
}

// putSealed is putInline where stores combine. Where the memory may not be zero, the header leaves last and alone.
func (t *tx) putSealed(p []byte) {
	if t.lines == nil {
		t.lines = new([maxInline + headerSize]byte)
	}
	b := t.lines[:inlineSize(len(p))]
	clear(b[copy(b[headerSize:], p)+headerSize:])
	h := seal(b, len(p)) | header(t.seq+1)
	n := headerSize + (len(p)+7)&^7
	clean := t.clean >= t.size
	pos := t.advance(h)
	switch {
	case !clean && n-headerSize <= parts:
		t.win.Write(pos+headerSize, b[headerSize:n])
		t.win.Publish64(pos, uint64(h))
		return
	case !clean:
		binary.LittleEndian.PutUint64(b, 0)
		t.win.Write(pos, b[:combined(n)])
		t.win.Publish64(pos, uint64(h))
		return
	case n > line:
		t.win.Write(pos+line, b[line:combined(n)])
		t.win.Flush()
	}
	binary.LittleEndian.PutUint64(b, uint64(h))
	t.win.Write(pos, b[:min(line, combined(n))])
	t.win.Flush()
}

// parts is how many bytes of a line of write-combining memory leave for less than the price of a full one, at most: a full
// line is a packet, and each 8 bytes of one that is not are a packet too.
const parts = 16

// combined returns how many bytes to store for the first n of a record: whole lines, but for a last one of parts.
func combined(n int) int {
	if n%line <= parts {
		return n
	}
	return (n + line - 1) &^ (line - 1)
}

// reserve finds room for a record with payload of up to n bytes. It returns where
// the payload goes, and how much there may be, or 0 if there is no room for a
// worthwhile record. commit makes the record.
func (t *tx) reserve(n int) (off, k int) {
	toEnd := t.size - t.pos
	room := t.room()
	if n <= t.maxInline {
		need := inlineSize(n)
		if need > toEnd {
			if room < toEnd+need {
				return 0, 0
			}
			t.pad()
		} else if room < need {
			return 0, 0
		}
		t.kind = kindInline
		return t.pos + headerSize, n
	}
	if toEnd < minBulkTail {
		if room < toEnd {
			return 0, 0
		}
		t.pad()
		toEnd, room = t.size, t.room()
	}
	k = min(n, maxPiece, max(t.size/4, min(t.size/2, halfPiece))-line, toEnd-line, (room-line)&^(line-1))
	if k <= 0 || k < n && k < minBulkTail-line {
		return 0, 0
	}
	t.kind = kindBulk
	return t.pos + line, k
}

// commit makes a record of the first n bytes, at least one, of the room that
// reserve found. They hold its payload by now. Where n is less than together, the bytes
// behind belong to the same Write.
func (t *tx) commit(n, together int) {
	t.publish(makeHeader(t.seq+1, n, t.kind.of(n, together)))
	if t.kind == kindInline {
		t.st.inlineRecords++
		t.st.inlineBytes += uint64(n)
	} else {
		t.st.mmioRecords++
		t.st.mmioBytes += uint64(n)
	}
}

// pad skips the rest of the queue.
func (t *tx) pad() { t.publish(makeHeader(t.seq+1, t.size-t.pos-line, kindPad)) }

// fin publishes a record which says that no data follows. The reserve guarantees that it fits.
func (t *tx) fin() { t.publish(makeHeader(t.seq+1, 0, kindFIN)) }

// move publishes a record which says that the data goes on in next, and goes on there.
func (t *tx) move(next ntb.Window) {
	t.publish(makeHeader(t.seq+1, 0, kindMove))
	t.start(next)
}

// publish makes the record at pos valid. Its payload is stored already.
func (t *tx) publish(h header) {
	pos := t.advance(h)
	t.win.Publish64(pos, uint64(h))
}

// advance takes the room of a record that is to be published at pos, and returns
// pos. It first clears the header of the successor. Without that, the reader would
// find there what an earlier lap left, which may resemble anything. The reader gets
// there only after the header, which is published later, so the zero needs no order
// of its own. Where the memory is clean there is nothing to clear.
func (t *tx) advance(h header) (pos int) {
	n := h.size()
	pos = t.pos
	next := pos + n
	if next == t.size {
		next = 0
	}
	if t.clean < t.size {
		t.win.Store64(next, 0)
	}
	if t.clean += n; h.kind() != kindSealed && h.kind() != kindPad {
		t.clean = 0
	}
	t.pos = next
	t.seq++
	t.done += n
	t.send.Produce(n)
	return pos
}
