package shmem

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/ntbnet/ntbnet/ntb"
)

// server carries out the requests of one other PE. It runs in a goroutine of its
// own, so that the target of an operation need not call anything.
type server struct {
	w    *World
	pe   int
	conn net.Conn

	// Its goroutine owns these.
	head  [requestBytes]byte
	word  [8]byte
	reply [replyBytes + smallPut]byte
	buf   []byte // gathered blocks of a strided get
}

// errBye ends the server of a PE that has called Close.
var errBye = errors.New("bye")

// run handles requests until the last. If it ends early, the other PE counts as
// ended.
func (s *server) run() {
	var err error
	for err == nil {
		err = s.next()
	}
	if err == errBye {
		s.w.left(s.pe)
	} else {
		s.w.fail(s.pe, err)
	}
	s.conn.Close()
}

// next reads a request, once, and handles it.
func (s *server) next() error {
	if _, err := io.ReadFull(s.conn, s.head[:]); err != nil {
		return err
	}
	r := decodeRequest(s.head[:])
	if err := r.check(s.w.heap.size); err != nil {
		return fmt.Errorf("PE %d sent what no PE sends: %w", s.pe, err)
	}
	switch r.op {
	case opBye:
		return errBye
	case opWake:
		s.w.sleepers.wake()
		return nil
	case opDead:
		if pe := r.c; pe < uint64(len(s.w.peers)) && int(pe) != s.w.pe {
			s.w.fail(int(pe), fmt.Errorf("PE %d says so", s.pe))
		}
		return nil
	case opExit:
		s.w.exit(s.pe, int(int32(r.c)))
		return nil
	}
	err := s.do(&r)
	// It pairs with World.park, as a store of a PE that has mapped the heap does
	// (pair S8).
	ntb.Fence()
	if s.w.self.armed() {
		s.w.self.wake()
	}
	return err
}

func (s *server) do(r *request) error {
	heap, off := s.w.heap, uintptr(r.off)
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
		return s.answerStrided(r)
	case opAtomic:
		old := atomicAt(heap.base, off, r)
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
	base := s.w.heap.base
	if n != 4 && n != 8 || off%uintptr(n) != 0 {
		_, err := io.ReadFull(s.conn, s.w.heap.at(off, n))
		return err
	}
	if _, err := io.ReadFull(s.conn, s.word[:n]); err != nil {
		return err
	}
	if n == 4 {
		store(word4(base, off), binary.NativeEndian.Uint32(s.word[:]))
	} else {
		store(word8(base, off), binary.NativeEndian.Uint64(s.word[:]))
	}
	return nil
}

// view returns n bytes of the heap. A single word is loaded at once. The result is valid
// until the next call.
func (s *server) view(off uintptr, n int) []byte {
	base := s.w.heap.base
	switch {
	case n == 4 && off%4 == 0:
		binary.NativeEndian.PutUint32(s.word[:], load(word4(base, off)))
	case n == 8 && off%8 == 0:
		binary.NativeEndian.PutUint64(s.word[:], load(word8(base, off)))
	default:
		return s.w.heap.at(off, n)
	}
	return s.word[:n]
}

// answer sends a reply. A short one is one record.
func (s *server) answer(r *request, data []byte) error {
	n := s.begin(r)
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

func (s *server) begin(r *request) int {
	binary.LittleEndian.PutUint32(s.reply[:], r.number)
	clear(s.reply[4:replyBytes])
	return replyBytes
}

func (s *server) answerStrided(r *request) error {
	n := s.begin(r)
	_, err := s.conn.Write(s.reply[:n])
	s.buf = s.buf[:0] // it grows to maxGet at most
	for i := range r.c {
		s.buf = append(s.buf, s.view(uintptr(r.off+i*r.b), int(r.a))...)
	}
	if err == nil {
		_, err = s.conn.Write(s.buf)
	}
	return err
}

// atomicAt does an atomic operation on a word of the heap, with the same
// instruction as a PE that has the heap mapped. So both are atomic with each other.
func atomicAt(base *byte, off uintptr, r *request) uint64 {
	if r.width == 4 {
		return uint64(atomicDo(word4(base, off), r.amo, uint32(r.a), uint32(r.b)))
	}
	return atomicDo(word8(base, off), r.amo, r.a, r.b)
}

func atomicDo[T uint32 | uint64](p *T, op amo, v, want T) (old T) {
	switch op {
	case amoFetch:
		return atomicLoad(p)
	case amoSet:
		atomicStore(p, v)
	case amoSwap:
		return atomicSwap(p, v)
	case amoCompareSwap:
		return atomicCompareSwap(p, want, v)
	case amoAdd:
		return atomicAdd(p, v)
	case amoAnd:
		return atomicAnd(p, v)
	case amoOr:
		return atomicOr(p, v)
	case amoXor:
		return atomicXor(p, v)
	}
	return 0
}
