package activemsg

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/ntbnet/ntbnet/internal/symheap"
)

// Target is the PE whose heap a server accesses.
type Target interface {
	Stored()         // a request may have stored to the heap
	Wake()           // sleepers are to poll again
	Dead(pe int)     // the other PE says that PE pe has ended
	Exit(status int) // the other PE ends the job
}

// ErrBye is what Serve returns when the other PE has sent its last request.
var ErrBye = errors.New("bye")

// server handles the requests of one other PE.
type server struct {
	// Immutable.
	conn net.Conn
	heap *symheap.Heap
	to   Target

	// Its goroutine owns these.
	head  [requestBytes]byte
	word  [8]byte
	reply [replyBytes + smallPut]byte
	buf   []byte // gathered blocks of a strided get
}

// Serve handles requests that arrive over a connection, until the last. It runs in a
// goroutine of its own, so that the target of an operation need not call anything. If it
// returns another error than ErrBye, the other PE cannot go on.
func Serve(conn net.Conn, heap *symheap.Heap, to Target) error {
	s := &server{conn: conn, heap: heap, to: to}
	for {
		if err := s.next(); err != nil {
			return err
		}
	}
}

// next reads a request, once, and handles it.
func (s *server) next() error {
	if _, err := io.ReadFull(s.conn, s.head[:]); err != nil {
		return err
	}
	r := decodeRequest(s.head[:])
	if err := r.check(s.heap.Size); err != nil {
		return fmt.Errorf("it sent what no PE sends: %w", err)
	}
	switch r.op {
	case opBye:
		return ErrBye
	case opWake:
		s.to.Wake()
		return nil
	case opDead:
		s.to.Dead(int(min(r.c, maxPE)))
		return nil
	case opExit:
		s.to.Exit(int(int32(r.c)))
		return nil
	}
	err := s.do(&r)
	if r.stores() {
		s.to.Stored()
	}
	return err
}

// maxPE is more than any PE's number.
const maxPE = 1 << 30

func (s *server) do(r *request) error {
	off := uintptr(r.off)
	switch r.op {
	case opPut:
		return s.take(off, int(r.a))
	case opPutStrided:
		for i := range r.c {
			if err := s.take(off+uintptr(i*r.b), int(r.a)); err != nil {
				return err
			}
		}
		return nil
	case opGet:
		return s.answer(r, s.view(off, int(r.a)))
	case opGetStrided:
		s.buf = s.buf[:0] // it grows to maxGet at most
		for i := range r.c {
			s.buf = append(s.buf, s.view(off+uintptr(i*r.b), int(r.a))...)
		}
		return s.answer(r, s.buf)
	case opAtomic:
		// The same instructions as of a PE that has the heap mapped, so both are atomic with
		// each other.
		old := symheap.Atomic(s.heap.Base, off, r.amo, uintptr(r.width), r.a, r.b)
		if r.number == 0 {
			return nil
		}
		binary.LittleEndian.PutUint64(s.word[:], old)
		return s.answer(r, s.word[:r.width])
	}
	return s.answer(r, nil) // opAck
}

// take reads n bytes into the heap. A single word is stored at once, since a
// goroutine may wait for it.
func (s *server) take(off uintptr, n int) error {
	base := s.heap.Base
	if n != 4 && n != 8 || off%uintptr(n) != 0 {
		_, err := io.ReadFull(s.conn, s.heap.At(off, n))
		return err
	}
	if _, err := io.ReadFull(s.conn, s.word[:n]); err != nil {
		return err
	}
	if n == 4 {
		symheap.Store4(base, off, binary.NativeEndian.Uint32(s.word[:]))
	} else {
		symheap.Store8(base, off, binary.NativeEndian.Uint64(s.word[:]))
	}
	return nil
}

// view returns n bytes of the heap. A single word is loaded at once. The result is valid
// until the next call.
func (s *server) view(off uintptr, n int) []byte {
	base := s.heap.Base
	switch {
	case n == 4 && off%4 == 0:
		binary.NativeEndian.PutUint32(s.word[:], symheap.Load4(base, off))
	case n == 8 && off%8 == 0:
		binary.NativeEndian.PutUint64(s.word[:], symheap.Load8(base, off))
	default:
		return s.heap.At(off, n)
	}
	return s.word[:n]
}

// answer sends a reply. A short one is one record.
func (s *server) answer(r *request, data []byte) error {
	binary.LittleEndian.PutUint32(s.reply[:], r.number)
	clear(s.reply[4:replyBytes])
	n := replyBytes
	if len(data) <= smallPut {
		n += copy(s.reply[n:], data)
		data = nil
	}
	_, err := s.conn.Write(s.reply[:n])
	if err == nil && len(data) > 0 {
		_, err = s.conn.Write(data)
	}
	return err
}
