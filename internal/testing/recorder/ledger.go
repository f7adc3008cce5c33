package recorder

import (
	"encoding/binary"

	"github.com/ntbnet/ntbnet/ntb"
)

// ledger is what two sides have granted each other and stored, over a bridge or a
// tunnel. Side 1-x stores to the memory of side x. The recorder's lock guards it.
type ledger struct {
	rec     *Recorder
	ids     [2]uint32 // of the nodes; 0 before bring-up
	mem     [2]*memory
	scratch bool // there is a DMA engine, which may be measured
	spads   [2]uint32
	log     history // stores that belong to no connection
}

// Offsets in a window: "The window" of docs/protocol/link.md.
const (
	offMaster  = 0x0000
	offCredit  = 0x0040
	offBlocked = 0x0080
	offArm     = 0x00c0
	offSummary = 0x0400
	offSetup   = 0x1000
	offNotes   = 0x5000

	setupSlots  = 64
	setupBytes  = 256
	controlSize = 64
	minQueue    = 2 << 10
	maxQueue    = 16 << 20
	scratch     = 64 << 10
)

// memory is a side's inbound window.
type memory struct {
	ledger *ledger
	owner  int // the side that owns it; side 1-owner stores
	size   int
	in     []byte // what the owner sees; nil if the owner is not here
	slots  int
	region int // offset of the region

	controls map[int]*endpoint // by slot, the control blocks granted last
	blocks   map[int]*queue    // by region offset / 2048, the queues granted last

	// Set-up frames.
	sent   uint32 // published here
	frame  [setupBytes]byte
	filled spans
	credit uint32 // for the owner's frames, as published here
	claims [3]claim
	// Numbers of notifications whose summary, or master word, is still to follow.
	notes, summaries map[uint32]int
}

func newLedger(r *Recorder, sizes [2]int, in [2][]byte) *ledger {
	l := &ledger{rec: r}
	for x := range 2 {
		w := sizes[x]
		n := max(64, min(4096, w/4096), min(16384, w/16384)) &^ 63
		l.mem[x] = &memory{
			ledger: l, owner: x, size: w, in: in[x],
			slots: n, region: (offNotes + 8*n + 4095) &^ 4095,
			controls: map[int]*endpoint{}, blocks: map[int]*queue{},
			notes: map[uint32]int{}, summaries: map[uint32]int{},
		}
	}
	return l
}

// scratchAt returns the region offset of the scratch.
func (m *memory) scratchAt() int {
	n := m.size - m.region
	if n < 64*scratch {
		return n
	}
	return n&^4095 - scratch
}

// spad handles a store of side x to a scratchpad of bring-up.
func (l *ledger) spad(x, i int, v uint32) {
	if i > 4 {
		l.rec.violated(&l.log, "side %d stores scratchpad %d of a direct link", x, i)
	}
	l.spads[x] |= 1 << i
	if i == 1 {
		l.ids[x] = v
	}
}

// store checks a store of side x at st.off of the other's window.
func (l *ledger) store(x int, st store) *claim {
	l.rec.stores++
	m := l.mem[1-x]
	n := note{number: l.rec.stores, side: x, op: st.op, off: st.off, n: st.n, v: st.v}
	if st.off < 0 || st.off+st.n > m.size {
		l.log.add(n)
		l.rec.violated(&l.log, "a store outside of the window")
		return nil
	}
	if st.off >= m.region {
		if l.rec.links {
			return nil
		}
		st.off -= m.region
		return m.regionStore(st, n)
	}
	l.log.add(n)
	if l.spads[x]&1 == 0 && m.in != nil {
		l.rec.violated(&l.log, "a store before bring-up")
		return nil
	}
	return m.linkStore(st)
}

// linkStore checks a store before the region.
func (m *memory) linkStore(st store) *claim {
	l := m.ledger
	bad := func(format string, args ...any) *claim {
		l.rec.violated(&l.log, format, args...)
		return nil
	}
	if st.off >= offSetup && st.off < offNotes {
		return m.setupStore(st)
	}
	if st.op != opPublish32 || st.off%4 != 0 {
		return bad("a word of a link is not published as 4 bytes")
	}
	v := uint32(st.v)
	switch {
	case st.off == offMaster:
		delete(m.summaries, v)
		if _, ok := m.notes[v]; ok {
			return bad("master word %#x before its summary word", v)
		}
	case st.off == offCredit:
		// These are the owner's frames, in the other memory.
		if sent := l.mem[1-m.owner].sent; v-m.credit > sent-m.credit {
			return bad("set-up credit %d after %d, of %d frames", v, m.credit, sent)
		}
		m.credit = v
		return m.claims[0].take(m, &st, &l.log)
	case st.off == offBlocked:
		return m.claims[1].take(m, &st, &l.log)
	case st.off == offArm:
		return m.claims[2].take(m, &st, &l.log)
	case st.off >= offSummary && st.off < offSummary+m.slots/16:
		group, ok := m.notes[v]
		if !ok || group != (st.off-offSummary)/4 {
			return bad("summary word %#x without a notification word of its group", v)
		}
		delete(m.notes, v)
		m.summaries[v] = group
	case st.off >= offNotes && st.off < offNotes+8*m.slots:
		slot := (st.off - offNotes) / 8
		if m.controls[slot] == nil && !l.rec.links {
			return bad("a notification of slot %d, which was never granted", slot)
		}
		if len(m.notes) > 1<<16 {
			clear(m.notes) // a tunnel keeps only the last of several summaries
		}
		m.notes[v] = slot / 64
	default:
		return bad("a store to unused bytes of a link")
	}
	return nil
}

// setupStore checks a store to the set-up queue.
func (m *memory) setupStore(st store) *claim {
	l := m.ledger
	off := st.off - offSetup
	slot, at := off/setupBytes, off%setupBytes
	if next := m.sent + 1; slot != int((next-1)%setupSlots) || at+st.n > setupBytes {
		l.rec.violated(&l.log, "set-up slot %d where frame %d is next", slot, next)
		return nil
	}
	if given := l.mem[1-m.owner].credit; m.sent-given >= setupSlots {
		l.rec.violated(&l.log, "set-up frame %d with credit for %d", m.sent+1, given)
		return nil
	}
	if at >= 8 {
		copy(m.frame[at:], st.bytes())
		m.filled.add(uint64(at), uint64(at+st.n))
		return nil
	}
	size := int(uint16(st.v >> 32))
	if st.op != opPublish64 || at != 0 || uint32(st.v) != m.sent+1 || size > setupBytes-16 || byte(st.v>>56) != 1 {
		l.rec.violated(&l.log, "a bad first word of set-up frame %d", m.sent+1)
		return nil
	}
	if !m.filled.covers(8, uint64(16+size)) {
		l.rec.violated(&l.log, "set-up frame %d is published before its payload", m.sent+1)
		return nil
	}
	m.sent++
	m.filled = nil
	x := 1 - m.owner
	if src := binary.LittleEndian.Uint32(m.frame[8:]); src != l.ids[x] {
		l.rec.violated(&l.log, "set-up frame of node %#x from %#x", src, l.ids[x])
	}
	if byte(st.v>>48) == 1 && !l.rec.links {
		l.message(x, m.frame[16:16+size])
	}
	return nil
}

// zero reports whether the owner sees zeros in n bytes of its region. It returns true
// if that is not known.
func (m *memory) zero(off, n int) bool {
	for at := off; m.in != nil && at < off+n; at += 8 {
		if ntb.Load64(m.in, m.region+at) != 0 {
			return false
		}
	}
	return true
}

// spans are ranges of numbers, in order, none next to another.
type spans [][2]uint64

func (s *spans) add(from, to uint64) {
	var out spans
	for _, r := range *s {
		if r[1] < from || r[0] > to {
			out = append(out, r)
		} else {
			from, to = min(from, r[0]), max(to, r[1])
		}
	}
	i := 0
	for i < len(out) && out[i][0] < from {
		i++
	}
	out = append(out, [2]uint64{})
	copy(out[i+1:], out[i:])
	out[i] = [2]uint64{from, to}
	*s = out
}

// remove removes a range.
func (s *spans) remove(from, to uint64) {
	var out spans
	for _, r := range *s {
		if r[0] < min(from, r[1]) {
			out = append(out, [2]uint64{r[0], min(from, r[1])})
		}
		if max(to, r[0]) < r[1] {
			out = append(out, [2]uint64{max(to, r[0]), r[1]})
		}
	}
	*s = out
}

func (s spans) covers(from, to uint64) bool {
	for _, r := range s {
		if r[0] <= from && to <= r[1] {
			return true
		}
	}
	return from >= to
}
