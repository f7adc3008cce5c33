package bounce

import (
	"encoding/binary"
	"math"
)

// Kinds of records. The zero header means "nothing yet". A header of all ones is
// what a dead bridge returns, and no legal kind.
type kind uint8

const (
	kindInline kind = 1 + iota
	kindBulk
	kindPad
	kindFIN
	kindMove
	kindSealed // an inline record whose first line may arrive in parts, see seal
	// moreBit is set in the kind of a data record whose Write goes on in the next one.
	moreBit kind = 0x80
)

// of returns the kind of a data record with the first n of the bytes that belong together.
func (k kind) of(n, together int) kind {
	if n < together {
		k |= moreBit
	}
	return k
}

const (
	line        = 64 // of a cache; records are multiples of it
	headerSize  = 8
	maxInline   = 4*line - headerSize
	maxPayload  = 1<<24 - 1
	minQueue    = 2 << 10
	maxQueue    = 16 << 20
	maxPiece    = 64 << 10 // payload of one record, so that the reader starts early
	halfPiece   = 4 << 10  // a record takes a quarter of a queue, and where that would be less up to a half
	minBulkTail = 512      // a bulk record that would get less than this pads instead
	// reserve is the room kept for a pad, a FIN, a move and the clear behind the
	// last of them. Data never uses it, so those never wait.
	reserve = 4 * line
)

// header is a record's first word.
type header uint64

func makeHeader(seq uint32, n int, k kind) header {
	return header(seq) | header(n)<<32 | header(k)<<56
}

func (h header) seq() uint32  { return uint32(h) }
func (h header) kind() kind   { return kind(h>>56) &^ moreBit }
func (h header) inline() bool { return h.kind() == kindInline || h.kind() == kindSealed }
func (h header) more() bool   { return kind(h>>56)&moreBit != 0 }

func (h header) len() int {
	if h.kind() == kindSealed {
		return int(h >> 32 & 0xff)
	}
	return int(h >> 32 & maxPayload)
}

// size returns how many bytes of the queue the record takes.
func (h header) size() int {
	switch h.kind() {
	case kindInline, kindSealed:
		return inlineSize(h.len())
	case kindBulk:
		return bulkSize(h.len())
	case kindPad:
		return line + h.len()
	default:
		return line
	}
}

func inlineSize(n int) int { return (headerSize + n + line - 1) &^ (line - 1) }
func bulkSize(n int) int   { return line + (n+line-1)&^(line-1) }

// A sealed record's first line leaves in one store of 64 bytes, its header included. No bridge promises that the words of such a
// line arrive together. So none of the payload's words there is zero, and all were before. One that would be zero is stored
// as all ones, and the header has a bit for it.
const (
	sealedWords = line/headerSize - 1 // of payload, in the first line
	sealedBits  = 40                  // of the header that say which of these are zero
	sealedFree  = 9                   // bits behind them, which are zero
)

// seal makes a sealed record, without its kind and number, of the n bytes that b has behind the header.
func seal(b []byte, n int) header {
	h := header(n) << 32
	for i := range sealedIn(n) {
		if w := b[headerSize*(i+1):][:8]; binary.LittleEndian.Uint64(w) == 0 {
			binary.LittleEndian.PutUint64(w, math.MaxUint64)
			h |= 1 << (sealedBits + i)
		}
	}
	return h | header(kindSealed)<<56
}

// sealedIn returns how many words of n bytes of payload are in the first line.
func sealedIn(n int) int { return min(sealedWords, (n+7)/8) }

// unseal makes the words zero that b has for those of the payload of a sealed record.
func (h header) unseal(b []byte) {
	for i := range sealedIn(h.len()) {
		if h>>(sealedBits+i)&1 != 0 {
			clear(b[headerSize*(i+1):][:8])
		}
	}
}
