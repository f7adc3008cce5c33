package tunnel

import (
	"github.com/ntbnet/ntbnet/internal/frame"
	"github.com/ntbnet/ntbnet/ntb"
)

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
		i += frame.Round8(n)
		if i > len(body) {
			return false
		}
	}
	return true
}
