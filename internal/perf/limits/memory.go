package limits

import (
	"bytes"

	"github.com/ntbnet/ntbnet/ntb"
)

// Offsets in the shared memory, in bytes. The words are far enough apart that no
// processor fetches two of them together.
const (
	ping      = 0
	pong      = 1024
	head      = 2048
	tail      = 3072
	queueBase = 4096

	maxQueue   = 8 << 20
	memorySize = queueBase + maxQueue
)

// A cache line with payload: 56 bytes, then the word.
const (
	payload = 56
	wordAt  = payload
)

// A message of two cache lines: a word, and then 64 bytes, of which 56 are in the word's line.
const (
	twoLines  = 64
	payloadAt = 8
)

// messageSize is how much memory of its own each side copies from or to, in bytes: a message goes as
// one or more pieces. It is the size of the messages that are measured beside this limit, since
// smaller memory, in a nearer cache, is copied faster.
const messageSize = 64 << 10

// message is the memory of one side's own. Its size is a power of two.
type message []byte

// newMessage returns memory for messages of messageSize, or for larger ones of one piece. It is written,
// since pages that never were are all the same one, which stays in the first cache.
func newMessage(piece int) message { return bytes.Repeat([]byte{1}, max(piece, messageSize)) }

// at returns the piece of n bytes that goes at position pos of a queue.
func (m message) at(pos uint64, n int) []byte { return m[pos&uint64(len(m)-1):][:n] }

// Memory is the memory that the two processes share. Both may store to all of it.
type Memory struct {
	b   []byte
	out ntb.Window // the same bytes, for stores
}

func newMemory(b []byte) *Memory {
	return &Memory{b: b, out: ntb.MappedWindow(b, ntb.Cacheable)}
}

// publish stores a word, after everything stored before. It pairs with load.
func (m *Memory) publish(off int, v uint64) { m.out.Publish64(off, v) }

func (m *Memory) load(off int) uint64 { return ntb.Load64(m.b, off) }

// fill copies p, a piece, into a queue at position pos, by non-temporal stores if streamed is true.
func (m *Memory) fill(pos uint64, p []byte, queue int, streamed bool) {
	at := queueAt(pos, queue)
	if streamed {
		m.out.Stream(at, p)
		return
	}
	copy(m.b[at:at+len(p)], p)
}

// queueAt returns where position pos of a queue is.
func queueAt(pos uint64, queue int) int { return queueBase + int(pos&uint64(queue-1)) }

// piece returns n bytes of a queue at position pos. n divides the queue's size, and
// pos is a multiple of n.
func (m *Memory) piece(pos uint64, n, queue int) []byte {
	at := queueAt(pos, queue)
	return m.b[at : at+n]
}
