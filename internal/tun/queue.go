package tun

import (
	"hash/maphash"
	"math"
	"math/bits"
	"slices"
	"sync"
	"time"
)

// The constants of CoDel, RFC 8289, and of FQ-CoDel, RFC 8290.
const (
	target   = 5 * time.Millisecond   // how long packets may wait all the time
	interval = 100 * time.Millisecond // and longer than that for this long
	quantum  = 1514                   // bytes that a flow may send each time
	buckets  = 1024                   // of flows
)

// Queue holds packets that cannot be sent yet. It has a limit in bytes, and is fair: a flow, which is
// what has the same addresses, protocol and ports, waits for its own packets, and of each other flow
// for a quantum at most. A flow whose packets wait for too long loses some, as CoDel has it. The algorithm is that
// of FQ-CoDel. A Queue is for one goroutine.
type Queue struct {
	limit, bytes int
	seed         maphash.Seed
	flows        [buckets]flow
	fresh        []*flow // that have sent less than a quantum since they were empty
	old          []*flow // the other ones with packets

	// Overflows and Late count packets that were dropped since the queue was full, and by CoDel.
	Overflows, Late uint64
}

// entry is a packet with its headers, that is a frame.
type entry struct {
	b    []byte // in a buffer of a size that is a power of two
	at   time.Duration
	next *entry
}

// flow is the packets of a bucket.
type flow struct {
	first, last *entry
	bytes       int
	deficit     int
	listed      bool

	// Of CoDel.
	above    time.Duration // when the delay will have been above the target for an interval; 0 while it is below
	dropNext time.Duration
	drops    int // since dropping began
	lastRun  int // drops when dropping last ended
	dropping bool
}

// NewQueue returns a queue for a number of bytes.
func NewQueue(limit int) *Queue { return &Queue{limit: limit, seed: maphash.MakeSeed()} }

// Bytes returns how much waits.
func (q *Queue) Bytes() int { return q.bytes }

// pools have entries that nobody uses, by size, a power of two.
var pools [17]sync.Pool

// newEntry returns an entry with room for n bytes.
func newEntry(n int) *entry {
	class := bits.Len(uint(max(n, 256) - 1))
	if e, ok := pools[class].Get().(*entry); ok {
		return e
	}
	return &entry{b: make([]byte, 1<<class)}
}

// release gives an entry back.
func (e *entry) release() {
	e.b, e.next = e.b[:cap(e.b)], nil
	pools[bits.Len(uint(cap(e.b)-1))].Put(e)
}

// bucket returns the flow of a frame.
func (q *Queue) bucket(frame []byte) *flow {
	var key [37]byte
	p, err := parsePacket(frame[headSize:])
	if err == nil {
		src, dst := p.src.As16(), p.dst.As16()
		copy(key[:], src[:])
		copy(key[16:], dst[:])
		key[32] = p.protocol
		copy(key[33:], p.ports)
	}
	return &q.flows[maphash.Bytes(q.seed, key[:])%buckets]
}

// push queues a frame, now. If there is too much, the longest flow loses its first packets.
func (q *Queue) push(e *entry, now time.Duration) {
	f := q.bucket(e.b)
	e.at = now
	if f.last == nil {
		f.first = e
	} else {
		f.last.next = e
	}
	f.last = e
	f.bytes += len(e.b)
	q.bytes += len(e.b)
	if !f.listed {
		f.listed, f.deficit = true, quantum
		q.fresh = append(q.fresh, f)
	}
	for q.bytes > q.limit {
		q.longest().take(q).release()
		q.Overflows++
	}
}

// longest returns the flow with most bytes.
func (q *Queue) longest() (most *flow) {
	for _, flows := range [...][]*flow{q.fresh, q.old} {
		for _, f := range flows {
			if most == nil || f.bytes > most.bytes {
				most = f
			}
		}
	}
	return most
}

// take removes the first packet.
func (f *flow) take(q *Queue) *entry {
	e := f.first
	if e == nil {
		return nil
	}
	if f.first = e.next; f.first == nil {
		f.last = nil
	}
	f.bytes -= len(e.b)
	q.bytes -= len(e.b)
	return e
}

// pop returns the frame that is sent next, or nil. The caller releases it.
func (q *Queue) pop(now time.Duration) *entry {
	for {
		l := &q.fresh
		if len(*l) == 0 {
			l = &q.old
		}
		if len(*l) == 0 {
			return nil
		}
		f := (*l)[0]
		if f.deficit <= 0 {
			f.deficit += quantum
			*l = slices.Delete(*l, 0, 1)
			q.old = append(q.old, f)
			continue
		}
		e := q.codel(f, now)
		if e == nil {
			*l = slices.Delete(*l, 0, 1)
			if f.listed = l == &q.fresh && len(q.old) > 0; f.listed { // or it would be a fresh one again, and starve others
				q.old = append(q.old, f)
			}
			continue
		}
		f.deficit -= len(e.b)
		return e
	}
}

// clear drops all, and returns how many packets that were.
func (q *Queue) clear() (n uint64) {
	for f := q.longest(); f != nil && f.bytes > 0; f = q.longest() {
		f.take(q).release()
		n++
	}
	return n
}

// codel takes the first packet of a flow, and drops those before it that CoDel does.
func (q *Queue) codel(f *flow, now time.Duration) *entry {
	e, late := f.look(q, now)
	if f.dropping {
		if !late {
			f.dropping = false
		}
		for f.dropping && now >= f.dropNext {
			q.drop(e)
			f.drops++
			if e, late = f.look(q, now); !late {
				f.dropping = false
			} else {
				f.dropNext = control(f.dropNext, f.drops)
			}
		}
		return e
	}
	if !late {
		return e
	}
	q.drop(e)
	e, _ = f.look(q, now)
	f.dropping = true
	// After a short pause it goes on at the rate that it had.
	if delta := f.drops - f.lastRun; delta > 1 && now-f.dropNext < 16*interval {
		f.drops = delta
	} else {
		f.drops = 1
	}
	f.lastRun = f.drops
	f.dropNext = control(now, f.drops)
	return e
}

func (q *Queue) drop(e *entry) {
	q.Late++
	e.release()
}

// look takes the first packet, and reports whether the flow's packets have waited for longer than the target for an interval.
func (f *flow) look(q *Queue, now time.Duration) (e *entry, late bool) {
	e = f.take(q)
	if e == nil || now-e.at < target || f.bytes == 0 {
		f.above = 0
		return e, false
	}
	if f.above == 0 {
		f.above = now + interval
		return e, false
	}
	return e, now >= f.above
}

// control returns when the next packet is dropped: the more were, the sooner.
func control(t time.Duration, drops int) time.Duration {
	return t + time.Duration(float64(interval)/math.Sqrt(float64(max(drops, 1))))
}
