package mplite

import "github.com/ntbnet/ntbnet/shmem"

// Both queues carry entries of 24 bytes. Offsets in bytes:
//
//	 0  8  word: data of up to 8 bytes, or an offset in a heap, by kind
//	 8  4  tag
//	12  4  ref: the number of a message or of a posted receive, by kind
//	16  1  kind
//	17  7  size in bytes, signed
//
// Messages from one PE to another are numbered by their entries in the send queue,
// receives by the order in which they are posted; both numbers wrap.
const (
	entryWords = 3
	entryBytes = 8 * entryWords
	inHeader   = 8 // bytes of data that fit into word
	maxSize    = 1<<55 - 1
)

type kind uint8

const (
	// In the send queue, written by the sender.
	small     kind = 1 + iota // a message; word: its data
	buffered                  // a message; word: where it lies in the sender's heap
	announced                 // a message that waits for a grant
	done                      // a message is in the posted receive ref; word: its data up to 8 bytes
	piece                     // size bytes of message ref are where a grant named

	// In the receive queue, written by the receiver. A size below 0 stands for
	// -1-size, and says that the message has met a posted receive on its way. That
	// receive is withdrawn.
	post   // word: where up to size bytes that have the tag may be put
	pulled // message ref was taken, size bytes; word: a withdrawn receive
	grant  // put size bytes of message ref at word; tag: a withdrawn receive
)

type entry struct {
	word uint64
	tag  int32
	ref  uint32
	kind kind
	size int64
}

func (e *entry) encode(w []uint64) {
	_ = w[entryWords-1]
	w[0] = e.word
	w[1] = uint64(uint32(e.tag)) | uint64(e.ref)<<32
	w[2] = uint64(e.size)<<8 | uint64(e.kind)
}

// decode copies an entry out of this PE's heap. What the other PE wrote is read
// once, before it is checked.
func decode(w []uint64) entry {
	_ = w[entryWords-1]
	a, b, c := w[0], w[1], w[2]
	return entry{word: a, tag: int32(uint32(b)), ref: uint32(b >> 32), kind: kind(c), size: int64(c) >> 8}
}

// carries reports whether the entry is a message that no posted receive was used
// for.
func (k kind) carries() bool { return k == small || k == buffered || k == announced }

// withdrawal returns the size that a reply means, and whether the reply withdraws a
// posted receive.
func withdrawal(size int64) (int64, bool) {
	if size < 0 {
		return -1 - size, true
	}
	return size, false
}

// These words lie next to each other in the heap of one PE and are written by
// another, one set for each writer. They count from 0 and never go back. Each is
// stored at once, after all that it counts. link.hear loads it at once, before it
// reads what it counts.
const (
	wordHeaders = iota // entries it has written to the send queue there
	wordTaken          // entries it has taken from the send queue here
	wordReplies        // entries it has written to the receive queue there
	wordDrained        // entries it has taken from the receive queue here
	wordsPerPE
)

// queue is this PE's end of one queue to or from another PE. It is a ring of entries
// in the heap of the reader.
type queue struct {
	at    shmem.Sym[uint64]
	local []uint64 // of at; immutable
	slots uint64
}

func newQueue(all shmem.Sym[uint64], pe, slots int) queue {
	n := slots * entryWords
	at := all.Slice(pe*n, (pe+1)*n)
	return queue{at, at.Local(), uint64(slots)}
}

// read returns entry i.
func (q *queue) read(i uint64) entry {
	at := i % q.slots * entryWords
	return decode(q.local[at : at+entryWords])
}

// slot returns where entry i lies.
func (q *queue) slot(i uint64) shmem.Sym[uint64] { return q.at.From(int(i % q.slots * entryWords)) }
