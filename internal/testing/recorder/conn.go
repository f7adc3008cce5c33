package recorder

import (
	"math/bits"

	"github.com/ntbnet/ntbnet/internal/hello"
)

// endpoint is one endpoint of a connection: a control block and queues in the memory of one side,
// which the other side stores to. See "The region and the control blocks" of docs/protocol/stream.md.
type endpoint struct {
	mem  *memory
	slot int
	gen  uint32    // of the slot
	peer *endpoint // nil before HelloAck
	log  *history

	queues  map[uint32]*queue // by generation
	cur     uint32            // generation of the queue that is written
	granted uint32            // generation of the queue granted last
	seq     uint32            // of the record whose room was taken last
	fin     bool              // a FIN was published
	stored  bool              // anything was stored

	state   uint32
	data    uint32 // arm words, without the low bits
	space   uint32
	claims  [controlSize / 4]claim
	stopped bool // the other side stores nothing here any more
}

// Words of a control block.
const (
	controlCredit = 0
	controlGrant  = 8
	controlData   = 16
	controlSpace  = 20
	controlState  = 24

	stateAll      = 15
	stateStopped  = 4
	stateFinished = 8
)

// message handles a set-up message of SDP from side x.
func (l *ledger) message(x int, b []byte) {
	msg, err := hello.Parse(b)
	if err != nil {
		l.rec.violated(&l.log, "side %d sends %v", x, err)
		return
	}
	switch m := msg.(type) {
	case *hello.Hello:
		if m.Version == hello.Version {
			l.open(x, m.Endpoint)
		}
	case *hello.HelloAck:
		asked := l.asked(1-x, m.Slot, m.Gen)
		if asked == nil {
			l.rec.violated(&l.log, "side %d accepts slot %d, generation %d, that was not asked for", x, m.Slot, m.Gen)
		} else if e := l.open(x, m.Endpoint); e != nil {
			asked.join(e)
		}
	case *hello.Refuse:
		if asked := l.asked(1-x, m.Slot, m.Gen); asked != nil {
			if asked.stored {
				l.rec.violated(asked.log, "side %d refuses what it has stored to", x)
			}
			asked.stopped, asked.peer = true, asked
		}
	}
}

// asked returns the endpoint of side x in a Hello that was not answered.
func (l *ledger) asked(x int, slot, gen uint32) *endpoint {
	if e := l.mem[x].controls[int(slot)]; e != nil && e.gen == gen && e.peer == nil {
		return e
	}
	return nil
}

func (e *endpoint) join(peer *endpoint) {
	e.peer, peer.peer = peer, e
	peer.log = e.log
}

// over reports whether neither side stores for the connection any more.
func (e *endpoint) over() bool { return e.stopped && (e.peer == nil || e.peer.stopped) }

// open grants side x's control block and first queue to the other side.
func (l *ledger) open(x int, far hello.Endpoint) *endpoint {
	m := l.mem[x]
	e := &endpoint{mem: m, slot: int(far.Slot), gen: far.Gen, log: &history{}, queues: map[uint32]*queue{}, granted: 0, cur: 1}
	if e.slot >= m.slots {
		l.rec.violated(&l.log, "side %d grants slot %d of %d", x, e.slot, m.slots)
		return nil
	}
	if old := m.controls[e.slot]; old != nil && !old.over() {
		l.rec.violated(old.log, "side %d grants slot %d, which is in use", x, e.slot)
		return nil
	}
	if !m.zero(controlSize*e.slot, controlSize) {
		l.rec.violated(&l.log, "side %d grants the control block of slot %d without clearing it", x, e.slot)
		return nil
	}
	m.controls[e.slot] = e
	if !e.grant(int(far.Offset), int(far.Size)) {
		return nil
	}
	return e
}

// grant adds the next queue of the endpoint. It returns false if the memory may not
// be granted.
func (e *endpoint) grant(off, size int) bool {
	m := e.mem
	rec := m.ledger.rec
	if size < minQueue || size > maxQueue || bits.OnesCount(uint(size)) != 1 || off%minQueue != 0 ||
		off < controlSize*m.slots || size > m.scratchAt() || off > m.scratchAt()-size {
		rec.violated(e.log, "side %d grants a queue of %d bytes at %d", m.owner, size, off)
		return false
	}
	q := &queue{endpoint: e, off: off, size: uint64(size)}
	for b := off / minQueue; b < (off+size)/minQueue; b++ {
		if old := m.blocks[b]; old != nil && !old.free() {
			rec.violated(old.endpoint.log, "side %d grants a queue of %d bytes at %d, where one of slot %d is in use",
				m.owner, size, off, old.endpoint.slot)
			return false
		}
		m.blocks[b] = q
	}
	if !m.zero(off, 8) {
		rec.violated(e.log, "side %d grants the queue at %d without clearing its first header", m.owner, off)
		return false
	}
	e.granted++
	e.queues[e.granted] = q
	return true
}

// regionStore checks a store at st.off of the region.
func (m *memory) regionStore(st store, n note) *claim {
	l := m.ledger
	if st.off >= m.scratchAt() && l.scratch {
		return nil
	}
	if st.off < controlSize*m.slots {
		e := m.controls[st.off/controlSize]
		if e == nil {
			l.log.add(n)
			l.rec.violated(&l.log, "a store to the control block of slot %d, which was not granted", st.off/controlSize)
			return nil
		}
		n.off, n.where = st.off%controlSize, "control block"
		e.log.add(n)
		st.off %= controlSize
		return e.controlStore(st)
	}
	q := m.blocks[st.off/minQueue]
	if q == nil || st.off+st.n > q.off+int(q.size) {
		l.log.add(n)
		l.rec.violated(&l.log, "a store at %d of the region, which was not granted", st.off)
		return nil
	}
	n.off, n.where = st.off-q.off, "queue"
	q.endpoint.log.add(n)
	st.off -= q.off
	return q.store(st)
}

// controlStore checks a store to the control block of e.
func (e *endpoint) controlStore(st store) *claim {
	rec := e.mem.ledger.rec
	bad := func(format string, args ...any) *claim {
		rec.violated(e.log, format, args...)
		return nil
	}
	if e.stopped {
		return bad("a store to the control block of slot %d after STOPPED", e.slot)
	}
	e.stored = true
	want := opPublish32
	if st.off == controlCredit || st.off == controlGrant {
		want = opPublish64
	}
	if st.op != want {
		return bad("%v is no word of a control block", &st)
	}
	v := uint32(st.v)
	switch st.off {
	case controlCredit:
		if why := e.peer.credited(st.v); why != "" {
			return bad("credit %#x: %s", st.v, why)
		}
	case controlGrant:
		p := e.peer
		gen, off, size := uint32(st.v>>40), int(uint32(st.v))*minQueue, 1<<(st.v>>32&0x3f)
		if p == nil || p.cur != p.granted {
			return bad("a grant before the last one was taken")
		}
		if gen != (p.granted+1)&0xffffff {
			return bad("a grant of generation %d after %d", gen, p.granted)
		}
		if !p.grant(off, size) {
			return nil
		}
	case controlData:
		if count := v >> 3; e.mem.in != nil && count != e.data && count != e.data+1 {
			return bad("data arm %d after %d", count, e.data)
		} else {
			e.data = count
		}
	case controlSpace:
		if v>>24 != e.cur&0xff {
			return bad("space arm %#x in a queue of generation %d", v, e.cur)
		}
		if count := v >> 3 & 0x1fffff; e.mem.in != nil && count != e.space && count != (e.space+1)&0x1fffff {
			return bad("space arm %d after %d", count, e.space)
		} else {
			e.space = count
		}
	case controlState:
		if v&e.state != e.state || v&^stateAll != 0 || v == 0 {
			return bad("state %#x after %#x", v, e.state)
		}
		if v&stateFinished != 0 && !e.fin {
			return bad("FINISHED before the FIN")
		}
		e.state = v
		e.stopped = v&stateStopped != 0
	default:
		return bad("%v is no word of a control block", &st)
	}
	return e.claims[st.off/4].take(e.mem, &st, e.log)
}
