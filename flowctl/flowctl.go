package flowctl

import "fmt"

// MaxSize is the largest queue, in bytes.
const MaxSize = 1 << 30

// Pos is a count of bytes since a queue began, modulo 2^32.
type Pos uint32

// Since returns the number of bytes from q to p, where q is the earlier
// position.
func (p Pos) Since(q Pos) uint32 { return uint32(p - q) }

// Send is the sender's account of one queue. The zero Send has no room.
type Send struct {
	limit    uint32 // bytes that may be under way, at most the queue's size
	produced Pos
	credited Pos // last count that the receiver sent
}

// NewSend returns the account of an empty queue of size bytes.
func NewSend(size int) Send {
	checkSize(size)
	return Send{limit: uint32(size)}
}

// SetLimit sets how many bytes may be under way, at most the queue's size.
func (s *Send) SetLimit(n int) {
	checkSize(n)
	s.limit = uint32(n)
}

// Outstanding returns how many bytes were produced and not yet credited.
func (s *Send) Outstanding() int { return int(s.produced.Since(s.credited)) }

// Room returns how many bytes may be produced now. It is negative if the limit was
// lowered below what is under way.
func (s *Send) Room() int { return int(s.limit) - s.Outstanding() }

// Produce counts n bytes as sent. It does not check the limit: a caller that keeps
// a reserve may exceed it.
func (s *Send) Produce(n int) { s.produced += Pos(n) }

// Credit takes the receiver's count. It returns false and changes nothing if no
// honest receiver could have sent it, because it is more than was produced or less
// than was credited before.
func (s *Send) Credit(consumed Pos) bool {
	if consumed.Since(s.credited) > s.produced.Since(s.credited) {
		return false
	}
	s.credited = consumed
	return true
}

// Recv is the receiver's account of one queue.
type Recv struct {
	due      uint32 // owed bytes from which on credit is due
	consumed Pos
	returned Pos
}

// NewRecv returns the account of an empty queue of size bytes. Credit is due when a
// quarter of the queue is owed.
func NewRecv(size int) Recv {
	checkSize(size)
	return Recv{due: uint32(size) / 4}
}

// Consume counts n bytes as read.
func (r *Recv) Consume(n int) { r.consumed += Pos(n) }

// Owed returns how many bytes were consumed and not yet returned.
func (r *Recv) Owed() int { return int(r.consumed.Since(r.returned)) }

// Due reports whether enough is owed to send credit.
func (r *Recv) Due() bool { return r.consumed.Since(r.returned) >= r.due }

// Return marks all that is owed as returned, and returns the count to send.
func (r *Recv) Return() Pos {
	r.returned = r.consumed
	return r.consumed
}

func checkSize(n int) {
	if n < 0 || n > MaxSize {
		panic(fmt.Sprintf("flowctl: size %d, want 0 to %d", n, MaxSize))
	}
}
