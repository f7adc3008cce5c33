package mplite

import (
	"encoding/binary"

	"github.com/ntbnet/ntbnet/shmem"
)

// push writes to the other PE what it can: data that it has asked for, then messages
// in their order. If final is true, messages without a posted receive leave their
// buffer, or are announced.
func (l *link) push(final bool) {
	c := l.c
	for len(l.granted) > 0 && l.room() {
		g := l.granted[0]
		l.granted = l.granted[:copy(l.granted, l.granted[1:])]
		r := g.r
		l.put(g.off, r.buf[r.at:r.at+int(g.size)])
		r.at += int(g.size)
		l.header(entry{kind: piece, ref: g.number, size: g.size})
		if r.at == len(r.buf) {
			delete(l.waiting, g.number)
			c.sent(r, &c.stats.Granted)
		}
	}
	for len(l.sends) > 0 && l.begin(l.sends[0], final) {
		l.sends = l.sends[:copy(l.sends, l.sends[1:])]
	}
}

// begin sends a message, the first that is not sent yet. It returns false if that
// must wait.
func (l *link) begin(r *Request, final bool) bool {
	if !l.room() {
		return false
	}
	c, size := l.c, int64(len(r.buf))
	if i := l.match(r); i >= 0 {
		l.use(i, r)
		return true
	}
	if size <= inHeader {
		c.pause()
		l.header(entry{kind: small, word: inline(r.buf), tag: r.tag, size: size})
		c.sent(r, &c.stats.Small)
		return true
	}
	if !final {
		return false
	}
	c.pause() // a receive that is posted from here on falls into the gap
	e, ok := c.buffers.alloc(len(r.buf))
	if !ok {
		l.waiting[l.header(entry{kind: announced, tag: r.tag, size: size})] = r
		return true
	}
	copy(c.pool.Slice(e.off, e.off+len(r.buf)).Local(), r.buf)
	number := l.header(entry{kind: buffered, word: uint64(c.pool.Offset() + e.off), tag: r.tag, size: size})
	l.bufs[number] = e
	c.sent(r, &c.stats.Buffered)
	return true
}

// match returns the index of the posted receive that a message may be put into, or -1
// if there is none.
//
// It is the first receive that takes the message's tag. It must be long enough. It is
// not trusted while a message that it takes as well, and that went without a posted
// receive, has not been taken: the two may meet. See the gap in doc.go.
func (l *link) match(r *Request) int {
	for i := range l.posts {
		p := &l.posts[i]
		if p.tag != AnyTag && p.tag != r.tag {
			continue
		}
		if l.untaken(p.tag) && !l.c.opts.trust {
			if !r.ignored {
				r.ignored = true
				l.c.stats.Ignored++
			}
			return -1
		}
		if p.size < int64(len(r.buf)) {
			return -1
		}
		return i
	}
	return -1
}

// use puts a message into a posted receive.
func (l *link) use(i int, r *Request) {
	l.c.pause()
	p := l.posts[i]
	l.posts = append(l.posts[:i], l.posts[i+1:]...)
	e := entry{kind: done, tag: r.tag, ref: p.number, size: int64(len(r.buf))}
	if len(r.buf) <= inHeader {
		e.word = inline(r.buf)
	} else {
		l.put(p.off, r.buf)
	}
	l.header(e)
	l.c.sent(r, &l.c.stats.Direct)
}

// put copies data to an offset that was checked when it was received.
func (l *link) put(off uint64, data []byte) {
	dst, _ := shmem.At[byte](l.c.w, int(off), len(data))
	shmem.Put(l.c.ctx, dst, data, l.pe)
}

// inline returns data of up to 8 bytes as a word.
func inline(data []byte) uint64 {
	var b [inHeader]byte
	copy(b[:], data)
	return binary.LittleEndian.Uint64(b[:])
}

// outline copies a word that inline returned to dst.
func outline(dst []byte, word uint64) {
	var b [inHeader]byte
	binary.LittleEndian.PutUint64(b[:], word)
	copy(dst, b[:])
}

// sent ends a send. n is the counter for its kind.
func (c *Comm) sent(r *Request, n *uint64) {
	r.finished = true
	c.unsent--
	c.stats.Sent++
	*n++
}

// answer handles an entry of the receive queue here: what the other PE says about
// messages to it.
func (l *link) answer(e entry) {
	switch e.kind {
	case post:
		if e.size < 0 || e.tag < AnyTag || !l.c.inHeap(e.word, e.size) {
			l.c.bad(l, e)
			return
		}
		l.posts = append(l.posts, posted{e.ref, e.tag, e.word, e.size})
	case pulled:
		l.released(e)
	case grant:
		l.give(e)
	default:
		l.c.bad(l, e)
	}
}

// released handles a message that the other PE has taken.
func (l *link) released(e entry) {
	_, met := withdrawal(e.size)
	if met {
		l.withdraw(uint32(e.word), e)
	}
	if b, ok := l.bufs[e.ref]; ok {
		delete(l.bufs, e.ref)
		l.c.buffers.release(b)
	} else if r := l.waiting[e.ref]; r != nil { // the message is too long
		delete(l.waiting, e.ref)
		l.c.sent(r, &l.c.stats.Granted)
	} else if !met {
		l.c.bad(l, e)
	}
}

// give handles a request of the other PE for data.
func (l *link) give(e entry) {
	size, met := withdrawal(e.size)
	if met {
		l.withdraw(uint32(e.tag), e)
	}
	r := l.waiting[e.ref]
	if r == nil || size < 1 || size > int64(len(r.buf)-r.granted) || !l.c.inHeap(e.word, size) {
		l.c.bad(l, e)
		return
	}
	r.granted += int(size)
	l.granted = append(l.granted, give{r, e.ref, e.word, size})
}

// withdraw removes a posted receive.
func (l *link) withdraw(number uint32, e entry) {
	for i := range l.posts {
		if l.posts[i].number == number {
			l.posts = append(l.posts[:i], l.posts[i+1:]...)
			return
		}
	}
	l.c.unknown(l, e)
}

// inHeap reports whether size bytes at off are memory for objects.
func (c *Comm) inHeap(off uint64, size int64) bool {
	if off > maxSize || size > maxSize {
		return false
	}
	_, ok := shmem.At[byte](c.w, int(off), int(size))
	return ok
}
