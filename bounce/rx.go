package bounce

import (
	"errors"
	"fmt"
	"io"

	"github.com/ntbnet/ntbnet/flowctl"
	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/ntb"
)

// errBadRecord reports that the peer published a header that no honest peer would.
var errBadRecord = errors.New("bad record")

// rx is the reading end of one record queue. It never waits. The holder of the reader's
// lock owns all of it.
type rx struct {
	queue        // in our memory, written by the peer
	pos   int    // of the record under way, or of the next header
	seq   uint32 // of the last record read
	gen   uint32 // of the queue
	recv  flowctl.Recv

	at, left int  // payload of the record under way that is not read yet, in mem
	size     int  // of the record under way
	sealed   bool // it is cleared once it is read
	within   bool // the Write of the last data record goes on behind it
	fin      bool
	private  private // what was lent

	granted grants
	free    func(queue) // frees a queue that a move left
	st      rxStats
}

// grants are the queues where the peer may go on by its next moves, in order. The
// goroutine that grants one adds it before the peer learns of it.
type grants struct {
	mu   lock.Mutex[lock.Grants]
	list []queue // guarded by mu
}

func (g *grants) add(q queue) {
	g.mu.Lock()
	g.list = append(g.list, q)
	g.mu.Unlock()
}

func (g *grants) none() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.list) == 0
}

func (g *grants) take() queue {
	g.mu.Lock()
	defer g.mu.Unlock()
	q := g.list[0]
	g.list = g.list[1:]
	return q
}

type rxStats struct{ records, bytes uint64 }

// start goes on at the beginning of an empty queue.
func (r *rx) start(q queue) {
	r.queue, r.pos = q, 0
	r.gen++
	r.recv = flowctl.NewRecv(len(q.mem))
}

// ready reports whether get has something: data, an end or a bad record.
func (r *rx) ready() bool {
	if r.size > line && r.pos+line < len(r.mem) {
		// The next record is likely to have a second line as well, which arrives
		// before the first.
		ntb.Prefetch(r.mem, r.pos+line)
	}
	return r.left > 0 || r.fin || ntb.Load64(r.mem, r.pos) != 0 && r.next() != 0
}

// next returns the next header, or 0 if there is none, or its record has not arrived yet.
func (r *rx) next() header {
	h := header(ntb.Load64(r.mem, r.pos)) // read once; the peer may change it
	if h.kind() == kindSealed {
		for i := range sealedIn(h.len()) {
			if ntb.Load64(r.mem, r.pos+headerSize*(i+1)) == 0 {
				return 0
			}
		}
	}
	return h
}

// get reads into p what is there. It returns 0 and no error if nothing is, and
// io.EOF after the FIN.
func (r *rx) get(p []byte) (int, error) {
	n := 0
	if len(r.private.rest) > 0 {
		n = r.private.get(p)
		r.take(n)
	}
	for n < len(p) {
		if r.left == 0 {
			more, err := r.open()
			if !more {
				if n > 0 {
					err = nil // it will be there next time
				}
				return n, err
			}
		}
		k := copy(p[n:], r.mem[r.at:r.at+r.left])
		n += k
		r.take(k)
	}
	return n, nil
}

// unread reports whether data has arrived that was not read.
func (r *rx) unread() bool {
	if r.left > 0 {
		return true
	}
	more, _ := r.open()
	return more
}

// view returns the payload under way that is not read yet: in place, or, where the peer may be
// of another user, the first of it as a copy, which stays the same until it is taken. It is
// empty if nothing is there. After the FIN the error is io.EOF.
func (r *rx) view() ([]byte, error) {
	if r.left == 0 {
		if more, err := r.open(); !more {
			return nil, err
		}
	}
	b := r.mem[r.at : r.at+r.left : r.at+r.left]
	if r.private.wanted {
		b = r.private.of(b)
	}
	return b, nil
}

// lent returns how many bytes view has returned.
func (r *rx) lent() int {
	if r.private.wanted {
		return len(r.private.rest)
	}
	return r.left
}

// taken counts k bytes of what view returned as read.
func (r *rx) taken(k int) {
	r.private.drop(k)
	r.take(k)
}

// take counts k bytes of the payload under way as read.
func (r *rx) take(k int) {
	r.at += k
	r.left -= k
	r.st.bytes += uint64(k)
	if r.left == 0 {
		if r.sealed {
			r.clear(r.size)
		}
		r.done(r.size)
	}
}

// clear stores zeros over the record of n bytes at pos. It is called for sealed records and pads, whose memory the writer takes to
// be zero when it comes round again. It stores whole words, since zeros behind a payload may still arrive from the writer.
func (r *rx) clear(n int) {
	own := ntb.MappedWindow(r.mem[r.pos:r.pos+n], ntb.Cacheable)
	for i := 0; i < n; i += headerSize {
		own.Store64(i, 0)
	}
}

// open advances to the next record with payload.
func (r *rx) open() (bool, error) {
	for !r.fin {
		h := r.next()
		if h == 0 {
			return false, nil
		}
		if err := r.check(h); err != nil {
			return false, err
		}
		r.seq++
		r.sealed = h.kind() == kindSealed
		switch h.kind() {
		case kindInline, kindSealed:
			if r.sealed {
				h.unseal(r.mem[r.pos:])
			}
			r.at, r.left, r.size, r.within = r.pos+headerSize, h.len(), h.size(), h.more()
			r.st.records++
			return true, nil
		case kindBulk:
			r.at, r.left, r.size, r.within = r.pos+line, h.len(), h.size(), h.more()
			r.st.records++
			return true, nil
		case kindPad:
			r.clear(h.size())
			r.done(h.size())
		case kindMove:
			r.followMove()
		case kindFIN:
			r.fin = true
		}
	}
	return false, io.EOF
}

// takeMoves takes the moves that are next, and nothing else.
func (r *rx) takeMoves() {
	for r.left == 0 && !r.fin {
		h := header(ntb.Load64(r.mem, r.pos))
		if h.kind() != kindMove || r.check(h) != nil {
			return // a bad one is reported to the next Read
		}
		r.seq++
		r.followMove()
	}
}

func (r *rx) followMove() {
	old := r.queue
	r.start(r.granted.take()) // check has seen that there is one
	r.free(old)
}

// check refuses a header that would lead outside of the queue or violate the
// protocol.
func (r *rx) check(h header) error {
	n, size := h.len(), h.size()
	bad := ""
	switch {
	case h.seq() != r.seq+1:
		bad = "wrong sequence number"
	case r.pos+size > len(r.mem):
		bad = "beyond the queue"
	case h.inline() && (n == 0 || n > maxInline):
		bad = "wrong length"
	case h.kind() == kindSealed && h<<8>>(64-sealedFree) != 0:
		bad = "unknown bits"
	case h.kind() == kindBulk && n == 0:
		bad = "wrong length"
	case h.kind() == kindPad && r.pos+size != len(r.mem):
		bad = "not up to the queue's end"
	case h.kind() == kindMove && r.granted.none():
		bad = "no queue was granted"
	case h.kind() < kindInline || h.kind() > kindSealed || h.more() && h.kind() != kindBulk && !h.inline():
		bad = "unknown kind"
	default:
		return nil
	}
	return fmt.Errorf("%w %#016x at %d of %d, after record %d: %s", errBadRecord, uint64(h), r.pos, len(r.mem), r.seq, bad)
}

// credit returns the credit word of all that was read, see tx.credit.
func (r *rx) credit() uint64 { return uint64(r.gen)<<32 | uint64(r.recv.Return()) }

// done advances behind a record of size bytes.
func (r *rx) done(size int) {
	r.pos += size
	if r.pos == len(r.mem) {
		r.pos = 0
	}
	r.recv.Consume(size)
}
