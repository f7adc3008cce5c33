//go:build !race

package sdp

import (
	"encoding/binary"
	"math/rand/v2"
	"time"

	"github.com/ntbnet/ntbnet/ntb"
)

// scribbler stores arbitrary values into one side's window and scratchpads, as the peer
// can: at random, and near what an honest peer would store, at the words that are read.
type scribbler struct {
	rnd    *rand.Rand
	old    [256]uint64 // words seen there, and stored
	data   [64]byte    // header of a frame of data
	stores uint64
}

// victim is the side that a scribbler stores to.
type victim struct {
	dev   ntb.Device // the peer's end
	in    []byte     // the victim's window, as the victim sees it
	out   ntb.Window // the same, for stores
	lanes int        // bytes of the lanes' part, 0 if there are none
	slots int
	slot  int // bytes of a lane's slot
}

// Offsets in the window of a direct link, for windows of up to 1 MiB, from
// docs/protocol.
const (
	scribbleSetup  = 0x1000
	scribbleNotes  = 0x5000
	scribbleRegion = 0x6000
	scribbleQueues = scribbleRegion + 64*64
)

// aim is where stores go for a while.
type aim int

const (
	aimAnywhere aim = iota
	aimConnections
	aimNotes
	aimSetup
	aimLanes
	aimRecords
	aimFrames
	aimSetupFrames
	aimSpads
	aimOneWord
	aims
)

// burst makes about n stores at an aim.
func (s *scribbler) burst(v *victim, a aim, n uint64) {
	place := s.place(v, aim(s.rnd.IntN(int(aimRecords))))
	if s.rnd.IntN(2) == 0 {
		place = s.place(v, aimConnections)
	}
	for end := s.stores + n; s.stores < end; {
		switch a {
		case aimRecords:
			s.record(v)
		case aimFrames:
			s.frame(v)
		case aimSetupFrames:
			s.setup(v)
		case aimSpads:
			s.dev(v)
		case aimOneWord:
			// To and fro, between a load of the word and its use.
			was := ntb.Load64(v.in, place)
			bad := s.value(v, place)
			for range 1 + s.rnd.IntN(64) {
				s.put(v, place, bad)
				s.put(v, place, was)
			}
		default:
			at := s.place(v, a)
			s.put(v, at, s.value(v, at))
		}
	}
	if a == aimRecords || a == aimConnections || a == aimOneWord {
		s.announce(v)
	}
}

// record stores a header with a likely number where a connection may check for the next
// one.
func (s *scribbler) record(v *victim) {
	r := s.rnd
	queue := v.lanes + scribbleQueues&^2047 + 2048*r.IntN(min(64, (len(v.in)-v.lanes-scribbleQueues)/2048-1))
	pos, seq := 0, uint32(0)
	for pos <= 1984 {
		h := ntb.Load64(v.in, queue+pos)
		n := int(h >> 32 & 0xffffff)
		if uint32(h) != seq+1 || n > 2048 {
			break
		}
		seq++
		switch h >> 56 {
		case 1:
			n += 8
		case 2, 3:
			n += 64
		default:
			n = 64
		}
		pos += (n + 63) &^ 63
	}
	if pos > 1984 || r.IntN(8) == 0 {
		pos = 64 * r.IntN(32)
	}
	n := [...]int{0, 1, 56, 248, 249, 1984 - pos, 2048 - pos, 2048, 1<<24 - 1, r.IntN(1 << 24)}[r.IntN(10)]
	h := uint64(seq+1) | uint64(n&0xffffff)<<32 | uint64(1+r.IntN(6))<<56
	was := ntb.Load64(v.in, queue+pos)
	v.out.Publish64(queue+pos, h)
	s.stores++
	for range r.IntN(16) { // it changes while it is read
		v.out.Publish64(queue+pos, h^uint64(r.IntN(1<<24))<<32)
		v.out.Publish64(queue+pos, h)
		s.stores += 2
	}
	if r.IntN(4) == 0 {
		v.out.Publish64(queue+pos, was)
	}
}

// put stores a word, or half of one.
func (s *scribbler) put(v *victim, at int, x uint64) {
	s.stores++
	s.old[s.rnd.IntN(len(s.old))] = x
	switch s.rnd.IntN(4) {
	case 0:
		v.out.Publish32(at, uint32(x))
	case 1:
		v.out.Publish32(at+4, uint32(x>>32))
	default:
		v.out.Publish64(at, x)
	}
}

// place returns the offset of a word.
func (s *scribbler) place(v *victim, a aim) int {
	at := v.lanes
	switch a {
	case aimConnections:
		if s.rnd.IntN(2) == 0 {
			at += scribbleRegion + 64*s.rnd.IntN(8) + 8*s.rnd.IntN(4)
		} else {
			at += scribbleQueues + 64*s.rnd.IntN(1024)
		}
	case aimNotes:
		at += [...]int{0, 0xc0, 0x400, scribbleNotes + 8*s.rnd.IntN(64)}[s.rnd.IntN(4)]
	case aimSetup:
		at += [...]int{0, 0x40, 0x80, scribbleSetup + 8*s.rnd.IntN(64*32)}[s.rnd.IntN(4)]
	case aimLanes:
		at = 64 * s.rnd.IntN(3)
		if s.rnd.IntN(2) == 0 {
			at = 0x1000 + s.rnd.IntN(v.slots)*v.slot + 8*s.rnd.IntN(v.slot/8)
		}
	default:
		at = 8 * s.rnd.IntN(len(v.in)/8)
	}
	return min(at, len(v.in)-8)
}

// value returns what to store at a place.
func (s *scribbler) value(v *victim, at int) uint64 {
	r := s.rnd
	was := ntb.Load64(v.in, at)
	switch r.IntN(8) {
	case 0:
		return r.Uint64()
	case 1:
		return was + uint64(r.IntN(130)) - 65
	case 2:
		return was ^ 1<<r.IntN(64)
	case 3:
		return s.old[r.IntN(len(s.old))]
	case 4:
		limits := [...]uint64{0, 1, 1 << 31, 1<<31 - 1, 1<<32 - 1, 1 << 32, 1 << 63, 1<<63 - 1, ^uint64(0), 1<<56 - 1}
		return limits[r.IntN(len(limits))] + uint64(r.IntN(3)) - 1
	case 5: // a record's header
		return uint64(uint32(was)+uint32(r.IntN(3))) | uint64(r.IntN(1<<r.IntN(25)))<<32 | uint64(r.IntN(7))<<56
	case 6: // credit
		return uint64(r.IntN(4))<<32 | uint64(64*r.IntN(64))
	default: // a grant, an arm, a state
		return uint64(r.IntN(4))<<40 | uint64(10+r.IntN(16))<<32 | uint64(r.IntN(1<<r.IntN(16)))
	}
}

// dev stores scratchpads and rings doorbells.
func (s *scribbler) dev(v *victim) {
	s.stores++
	c := v.dev.Caps()
	i := s.rnd.IntN(c.Scratchpads)
	x := v.dev.Spad(i) // ours, of the same kind
	switch s.rnd.IntN(3) {
	case 0:
		x = s.rnd.Uint32()
	case 1:
		x += uint32(s.rnd.IntN(3)) - 1
	}
	v.dev.SetPeerSpad(i, x)
	if s.rnd.IntN(16) == 0 {
		v.dev.RingDoorbell(s.rnd.IntN(c.Doorbells))
	}
}

// setup stores a set-up frame that may come next: the contents of the slot before,
// slightly changed.
func (s *scribbler) setup(v *victim) {
	last := s.last(v, v.lanes+scribbleSetup, 64, 256)
	at := func(k uint32) int { return v.lanes + scribbleSetup + int((k-1)%64)*256 }
	b := make([]byte, 256)
	copy(b, v.in[at(last):])
	for range s.rnd.IntN(4) {
		b[8+s.rnd.IntN(48)] ^= 1 << s.rnd.IntN(8)
	}
	if s.rnd.IntN(2) == 0 {
		b[16] = byte(1 + s.rnd.IntN(3))
	}
	n := [...]int{28, 32, 16, s.rnd.IntN(242), 241 + s.rnd.IntN(1<<16-241)}[min(s.rnd.IntN(9)/2, 4)]
	v.out.Write(at(last+1)+8, b[8:])
	v.out.Publish64(at(last+1), uint64(last+1)|uint64(n)<<32|1<<48|1<<56)
	s.announce(v)
	s.stores += 32
}

// announce makes the victim look.
func (s *scribbler) announce(v *victim) {
	for _, at := range [...]int{scribbleNotes + 8*s.rnd.IntN(4), 0x400, 0} {
		v.out.Publish32(v.lanes+at, s.rnd.Uint32())
	}
	v.dev.RingDoorbell(s.rnd.IntN(v.dev.Caps().Doorbells))
	s.stores += 4
}

// frame stores a frame that may come next in the lane.
func (s *scribbler) frame(v *victim) {
	last := s.last(v, 0x1000, v.slots, v.slot)
	at := func(k uint32) int { return 0x1000 + int(k-1)%v.slots*v.slot }
	b := make([]byte, v.slot)
	copy(b, v.in[at(last):])
	r, put, le := s.rnd, binary.LittleEndian.PutUint32, binary.LittleEndian
	kind := uint64(b[4])
	n := 8 * r.IntN((v.slot-64)/8+1)
	for i := range v.slots {
		if slot := v.in[0x1000+i*v.slot:][:64]; slot[4] == 1 {
			copy(s.data[:], slot)
		}
	}
	switch r.IntN(6) {
	case 0, 1, 2: // the next frame of a tunnel
		if s.data[4] != 1 {
			break
		}
		kind = 1
		put(s.data[28:], le.Uint32(s.data[28:])+1)
		copy(b, s.data[:])
	case 3: // of any tunnel
		kind = uint64(1 + r.IntN(7))
		put(b[8:], uint32(1+r.IntN(5))<<16|1)
		put(b[12:], uint32(1+r.IntN(4))<<16|1)
		put(b[44:], uint32(64+r.IntN(64)))
		put(b[48:], uint32(16+r.IntN(64)))
	case 4: // slightly wrong
		for range r.IntN(3) {
			put(b[8+4*r.IntN(12):], uint32(s.value(v, at(last))))
		}
	default:
		n = 8 * r.IntN(1<<r.IntN(20))
	}
	put(b[36:], uint32(n))
	for i := 64; i+16 <= len(b) && r.IntN(4) != 0; i += 16 { // entries
		off := [...]int{8 * r.IntN(1<<13), len(v.in) - 8*r.IntN(4), r.IntN(1 << 31)}[min(r.IntN(8), 2)]
		size := [...]int{4, 8, 8, r.IntN(512), r.IntN(1 << 24)}[r.IntN(5)]
		le.PutUint64(b[i:], uint64(r.IntN(6))<<56|uint64(size)<<32|uint64(off))
		le.PutUint64(b[i+8:], s.value(v, at(last)))
	}
	v.out.Write(at(last+1)+8, b[8:])
	v.out.Publish64(at(last+1), uint64(last+1)|kind<<32|3<<40|uint64(r.IntN(6))<<48)
	v.dev.RingDoorbell(0)
	s.stores += uint64(v.slot / 8)
	// It is often taken before the next one comes. The credit is in our window.
	for range r.IntN(200) {
		if !v.dev.LinkUp() || int32(uint32(ntb.Load64(v.dev.Inbound(), 0))-last) > 0 {
			break
		}
		time.Sleep(10 * time.Microsecond)
	}
}

// last returns the highest number in the first words of slots, at least 1.
func (s *scribbler) last(v *victim, at, slots, size int) uint32 {
	last := uint32(1)
	for i := range slots {
		if k := uint32(ntb.Load64(v.in, at+i*size)); int32(k-last) > 0 && int(k-1)%slots == i {
			last = k
		}
	}
	return last
}
