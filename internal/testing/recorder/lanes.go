package recorder

import "encoding/binary"

// lanes are those of a link: "Links with lanes" of docs/protocol/hops.md.
type lanes struct {
	cable *cable
	slots int
	slot  int // bytes of a slot
	size  int // of their part of the windows
	lane  [2][]lane
	log   history
}

// lane is a lane of one side's window. The other side puts frames there.
type lane struct {
	sent   uint32 // frames published
	credit uint32 // for the owner's frames, as published here
	filled spans
	frame  []byte
	claims [3]claim
}

const (
	lanesAt        = 0x1000
	laneWords      = 256
	frameHeader    = 64
	frameData      = 1
	frameOpen      = 3
	frameAccept    = 4
	frameLinkState = 7
)

// laneFormat is byte 5 of each frame: the version of the lanes.
const laneFormat = 6

func newLanes(c *cable, count, slots, body int) *lanes {
	ls := &lanes{cable: c, slots: slots, slot: frameHeader + body}
	ls.size = (lanesAt + count*slots*ls.slot + 4095) &^ 4095
	for x := range 2 {
		ls.lane[x] = make([]lane, count)
		for i := range ls.lane[x] {
			ls.lane[x][i].frame = make([]byte, ls.slot)
		}
	}
	return ls
}

// store checks a store of side x.
func (ls *lanes) store(x int, st store) *claim {
	rec := ls.cable.rec
	ls.log.add(note{number: rec.stores, side: x, op: st.op, off: st.off, n: st.n, v: st.v, where: "lanes"})
	bad := func(format string, args ...any) *claim {
		rec.violated(&ls.log, format, args...)
		return nil
	}
	if st.off < lanesAt {
		return ls.word(x, st, bad)
	}
	at := st.off - lanesAt
	i := at / (ls.slots * ls.slot)
	if i >= len(ls.lane[0]) {
		return bad("a store behind the lanes")
	}
	at -= i * ls.slots * ls.slot
	l, back := &ls.lane[1-x][i], &ls.lane[x][i]
	if at/ls.slot != int(l.sent)%ls.slots || at%ls.slot+st.n > ls.slot {
		return bad("slot %d of lane %d where frame %d is next", at/ls.slot, i, l.sent+1)
	}
	if l.sent-back.credit >= uint32(ls.slots) {
		return bad("frame %d of lane %d with credit for %d", l.sent+1, i, back.credit)
	}
	if at %= ls.slot; at >= 8 {
		copy(l.frame[at:], st.bytes())
		l.filled.add(uint64(at), uint64(at+st.n))
		return nil
	}
	if at != 0 || st.op != opPublish64 || uint32(st.v) != l.sent+1 || byte(st.v>>40) != laneFormat {
		return bad("a bad first word of frame %d of lane %d", l.sent+1, i)
	}
	n := binary.LittleEndian.Uint32(l.frame[36:])
	kind := byte(st.v >> 32)
	if kind < frameData || kind > frameLinkState || n%8 != 0 || int64(n) > int64(ls.slot-frameHeader) {
		return bad("frame %d of lane %d: kind %d, %d bytes", l.sent+1, i, kind, n)
	}
	if !l.filled.covers(8, uint64(frameHeader+n)) {
		return bad("frame %d of lane %d is published before what is in it", l.sent+1, i)
	}
	l.sent++
	l.filled = nil
	if !rec.links && binary.LittleEndian.Uint32(l.frame[8:]) == ls.cable.spads[x][1] {
		rec.frame(kind, l.frame[:frameHeader+n])
	}
	return nil
}

// word checks a store to a lane's words.
func (ls *lanes) word(x int, st store, bad func(string, ...any) *claim) *claim {
	i := st.off / laneWords
	if st.op != opPublish32 || i >= len(ls.lane[0]) || st.off%64 != 0 || st.off%laneWords == 192 {
		return bad("%v is no word of a lane", &st)
	}
	l := &ls.lane[1-x][i]
	if st.off%laneWords == 0 {
		// These are the owner's frames, in the other memory.
		if sent := ls.lane[x][i].sent; uint32(st.v)-l.credit > sent-l.credit {
			return bad("credit %d of lane %d after %d, of %d frames", st.v, i, l.credit, sent)
		}
		l.credit = uint32(st.v)
	}
	return l.claims[st.off%laneWords/64].take(ls.cable.direct.mem[1-x], &st, &ls.log)
}
