package activemsg

import (
	"encoding/binary"
	"fmt"

	"github.com/ntbnet/ntbnet/internal/symheap"
)

// Version is the version of requests, and of what PEs keep in each other's heaps. PEs tell
// it each other before the first request.
const Version = 6

// A PE sends requests to a PE whose heap it cannot map, over a connection of its
// own. They are handled in their order. All numbers are little endian.
//
//	 0  1  operation
//	 1  1  atomic operation
//	 2  1  bytes of an atomic's word, 4 or 8
//	 3  1  zero
//	 4  4  number of the request, if it has a reply, else 0
//	 8  8  offset in the heap
//	16  8  put, get: bytes. Strided: bytes of a block. Atomic: operand
//	24  8  strided: bytes from block to block. Compare-and-swap: value compared with
//	32  8  strided: number of blocks. Exit: status. Dead: the PE
//	40     put: the bytes. Strided put: the blocks, without gaps
//
// A reply consists of the request's number, 4 bytes, 4 zero bytes, and what was
// asked for: the bytes of a get, an atomic's word, or nothing for an
// acknowledgement.
const (
	requestBytes = 40
	replyBytes   = 8
)

type operation uint8

const (
	opPut operation = 1 + iota
	opGet
	opPutStrided
	opGetStrided
	opAtomic // without a reply if its number is 0
	opAck    // asks for a reply when all requests before it are done
	opWake   // sleepers poll again
	opBye    // the last request
	opExit   // the job ends
	opDead   // a PE has ended
)

type request struct {
	op      operation
	amo     symheap.Op
	width   uint8
	number  uint32
	off     uint64
	a, b, c uint64
}

func (r *request) encode(p []byte) {
	_ = p[requestBytes-1]
	p[0], p[1], p[2], p[3] = byte(r.op), byte(r.amo), r.width, 0
	binary.LittleEndian.PutUint32(p[4:], r.number)
	binary.LittleEndian.PutUint64(p[8:], r.off)
	binary.LittleEndian.PutUint64(p[16:], r.a)
	binary.LittleEndian.PutUint64(p[24:], r.b)
	binary.LittleEndian.PutUint64(p[32:], r.c)
}

// stores reports whether the request may change memory.
func (r *request) stores() bool { return r.op == opPut || r.op == opPutStrided || r.op == opAtomic }

func decodeRequest(p []byte) request {
	_ = p[requestBytes-1]
	return request{
		op: operation(p[0]), amo: symheap.Op(p[1]), width: p[2],
		number: binary.LittleEndian.Uint32(p[4:]),
		off:    binary.LittleEndian.Uint64(p[8:]),
		a:      binary.LittleEndian.Uint64(p[16:]),
		b:      binary.LittleEndian.Uint64(p[24:]),
		c:      binary.LittleEndian.Uint64(p[32:]),
	}
}

// check reports whether the request can be done in a heap of size bytes. What it
// lets pass cannot touch anything else.
func (r *request) check(size int) error {
	end := uint64(size)
	inside := r.off >= symheap.Shared && r.off <= end
	replies := false
	switch r.op {
	case opPut:
		inside = inside && r.a <= end-r.off
	case opGet:
		inside = inside && r.a <= min(end-r.off, maxGet)
		replies = true
	case opPutStrided, opGetStrided:
		// Blocks do not overlap, and the last one ends inside. None of the products
		// is more than 2^57, since a heap has less than 2^41 bytes.
		inside = inside && r.a >= 1 && r.a <= r.b && r.b <= end && r.c >= 1 && r.c <= maxGet && r.a <= maxGet &&
			r.c*r.a <= maxGet && (r.c-1)*r.b+r.a <= end-r.off
		replies = r.op == opGetStrided
	case opAtomic:
		width := uint64(r.width)
		inside = inside && (width == 4 || width == 8) && width <= end-r.off && r.off%width == 0 &&
			r.amo >= symheap.Fetch && r.amo <= symheap.LastOp
		replies = r.number != 0
	case opAck:
		inside, replies = true, true
	case opWake, opBye, opExit, opDead:
		inside = true
	default:
		return fmt.Errorf("request %d is none", r.op)
	}
	if !inside || replies != (r.number != 0) {
		return fmt.Errorf("request %+v is none for a heap of %d bytes", *r, size)
	}
	return nil
}

// maxGet is the most that one request asks for, in bytes.
const maxGet = 64 << 10
