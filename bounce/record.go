package bounce

// Kinds of records. The zero header means "nothing yet". A header of all ones is
// what a dead bridge returns, and no legal kind.
type kind uint8

const (
	kindInline kind = 1 + iota
	kindBulk
	kindPad
	kindFIN
	kindMove
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

func (h header) seq() uint32 { return uint32(h) }
func (h header) len() int    { return int(h >> 32 & maxPayload) }
func (h header) kind() kind  { return kind(h>>56) &^ moreBit }
func (h header) more() bool  { return kind(h>>56)&moreBit != 0 }

// size returns how many bytes of the queue the record takes.
func (h header) size() int {
	switch h.kind() {
	case kindInline:
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
