package ring

import (
	"encoding/binary"
	"fmt"

	"github.com/ntbnet/ntbnet/internal/arq"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/ntb"
)

// A frame in its slot; docs/protocol/hops.md has the layout. All numbers are little endian.
//
// The first 8 bytes are published last. No payload is ever stored there, so the hop
// number shows whether a frame is from an earlier lap. They are never zero nor all
// ones.
const (
	frameHeader = 64
	headerWords = frameHeader / 8
)

// frameKind is the purpose of a frame.
type frameKind uint8

const (
	frameData   = frameKind(arq.Data)   // entries, in sequence
	frameAck    = frameKind(arq.Ack)    // only an acknowledgement, not in sequence
	frameOpen   = frameKind(arq.Open)   // makes a tunnel
	frameAccept = frameKind(arq.Accept) // answers open
	frameClose  = frameKind(arq.Close)  // the last frame of a tunnel, in sequence

	frameReset     frameKind = 6 // the destination has no such tunnel of the source
	frameLinkState frameKind = 7 // from neighbour to neighbour: an advertisement of a process' links
)

// frame is the header of a frame, in a copy of our own.
type frame struct {
	kind     frameKind
	hops     uint16
	src, dst link.ID
	to, from uint32 // numbers of the tunnel at the destination and at the source
	epoch    uint32
	seq, ack uint32
	length   uint32
	states   uint32 // of the links (link state)
	arg      uint32 // KiB of window (open, accept); the left link's epoch (link state)
	ask      uint32 // not 0: for an acknowledgement at once (data); KiB of retention (open, accept); the right link's epoch (link state)
}

// linkStateNumber returns the 64-bit number of a link state, whose frame has no tunnel.
func (f *frame) linkStateNumber() uint64 { return uint64(f.epoch) | uint64(f.seq)<<32 }

// size returns how many bytes of a slot the frame takes.
func (f *frame) size() int { return frameHeader + int(f.length) }

// first returns the word that makes the frame valid in a slot.
func (f *frame) first(hop uint32) uint64 {
	return uint64(hop) | uint64(f.kind)<<32 | linkVersion<<40 | uint64(f.hops)<<48
}

// encode writes everything behind the first word.
func (f *frame) encode(b *[frameHeader]byte) {
	put := binary.LittleEndian.PutUint32
	put(b[8:], uint32(f.src))
	put(b[12:], uint32(f.dst))
	put(b[16:], f.to)
	put(b[20:], f.from)
	put(b[24:], f.epoch)
	put(b[28:], f.seq)
	put(b[32:], f.ack)
	put(b[36:], f.length)
	put(b[40:], f.states)
	put(b[44:], f.arg)
	put(b[48:], f.ask)
	clear(b[52:])
}

// readFrame reads the header of a slot whose first word is first. It reads each
// word once, since the neighbour may change them. It returns false if no process may
// send such a frame.
func readFrame(slot []byte, first uint64, f *frame) bool {
	var w [headerWords]uint64
	for i := 1; i < headerWords; i++ {
		w[i] = ntb.Load64(slot, 8*i)
	}
	*f = frame{
		kind: frameKind(first >> 32), hops: uint16(first >> 48),
		src: link.ID(w[1]), dst: link.ID(w[1] >> 32),
		to: uint32(w[2]), from: uint32(w[2] >> 32),
		epoch: uint32(w[3]), seq: uint32(w[3] >> 32),
		ack: uint32(w[4]), length: uint32(w[4] >> 32),
		states: uint32(w[5]), arg: uint32(w[5] >> 32),
		ask: uint32(w[6]),
	}
	return uint8(first>>40) == linkVersion && f.kind >= frameData && f.kind <= frameLinkState &&
		int64(f.length) <= int64(len(slot)-frameHeader) && f.length%8 == 0
}

// badFrame is the error of a frame that readFrame refuses. A neighbour that has the same
// version as this side, or it would have no link, sends none of another one.
func badFrame(first uint64) error {
	if v := uint8(first >> 40); v != linkVersion {
		return fmt.Errorf("%w: %w: a frame of version %d, the link has %d", link.ErrProtocol, link.ErrVersion, v, linkVersion)
	}
	return fmt.Errorf("%w: bad frame %#x", link.ErrProtocol, first)
}

// The body of a frame of data: entries, one behind the other, each a word
//
//	0  4  offset in the destination's window
//	4  3  bytes n
//	7  1  kind
//
// followed by n bytes, rounded up to 8. Entries are stored in their order.
type entryKind uint8

const (
	entryData    entryKind = 1 + iota // n bytes
	entryStore                        // a word of n = 8 bytes, not ordered
	entryPublish                      // a word of n = 4 or 8 bytes
)

const (
	entryHeader   = 8
	wordEntry     = entryHeader + 8
	maxEntryBytes = 1<<24 - 8
)

func entryWord(k entryKind, off, n int) uint64 {
	return uint64(uint32(off)) | uint64(n)<<32 | uint64(k)<<56
}

// round8 rounds up to a multiple of 8.
func round8(n int) int { return (n + 7) &^ 7 }

// sinkMemory is the memory into which entries are stored.
type sinkMemory struct {
	in  []byte
	win ntb.Window // onto in
	// published is called for each published word, after it is stored.
	published func(off int)
}

// apply stores the entries of a body. The neighbour may change every byte of it
// meanwhile. apply returns false at the first entry that is not wholly inside of
// the body and of the window. What came before it is stored.
func (m *sinkMemory) apply(body []byte) bool {
	for i := 0; i < len(body); {
		w := ntb.Load64(body, i) // the length of bodies is a multiple of 8
		i += entryHeader
		off, n := int(uint32(w)), int(w>>32&0xffffff)
		if n > len(body)-i {
			return false
		}
		if off > len(m.in) || n > len(m.in)-off {
			return false
		}
		switch kind := entryKind(w >> 56); {
		case kind == entryData:
			m.win.Write(off, body[i:i+n])
		case kind == entryStore && n == 8 && off%8 == 0:
			m.win.Store64(off, ntb.Load64(body, i))
		case kind == entryPublish && n == 8 && off%8 == 0:
			m.win.Publish64(off, ntb.Load64(body, i))
			m.published(off)
		case kind == entryPublish && n == 4 && off%4 == 0:
			m.win.Publish32(off, ntb.Load32(body, i))
			m.published(off)
		default:
			return false
		}
		i += round8(n)
		if i > len(body) {
			return false
		}
	}
	return true
}
