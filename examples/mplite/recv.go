package mplite

import "github.com/ntbnet/ntbnet/shmem"

// takes reports whether the receive may take a message of that PE with that tag.
func (r *Request) takes(pe int, tag int32) bool {
	return (r.peer == AnySource || r.peer == pe) && (r.tag == AnyTag || r.tag == tag)
}

// overlaps reports whether some message may be for either receive.
func (r *Request) overlaps(o *Request) bool {
	return (r.peer == o.peer || r.peer == AnySource || o.peer == AnySource) &&
		(r.tag == o.tag || r.tag == AnyTag || o.tag == AnyTag)
}

// take takes the next header from the send queue of a PE.
func (c *Comm) take(l *link) {
	e := l.in.read(l.got)
	number := uint32(l.got)
	l.got++
	switch {
	case e.kind == done:
		c.arrived(l, e)
	case e.kind == piece:
		c.piece(l, e)
	case !e.kind.carries() || e.tag < 0 || e.size < 0 || e.kind == small != (e.size <= inHeader),
		e.kind == buffered && !c.inHeap(e.word, e.size):
		c.bad(l, e)
	default:
		c.meet(l, message{e, number})
	}
}

// meet gives a message to the first receive that takes it.
func (c *Comm) meet(l *link, m message) {
	for i, r := range c.pending {
		if r.takes(l.pe, m.tag) {
			c.unlist(i)
			c.deliver(r, l, m)
			return
		}
	}
	l.unexpected = append(l.unexpected, m)
}

// unexpected gives a receive the first message that came for it before its call, if
// any. It reports whether there was one.
func (c *Comm) unexpected(r *Request) bool {
	l, i := c.find(r.peer, r.tag)
	if l == nil {
		return false
	}
	m := l.unexpected[i]
	l.unexpected = append(l.unexpected[:i], l.unexpected[i+1:]...)
	c.stats.Unexpected++
	c.deliver(r, l, m)
	return true
}

// find finds a message that has no receive. For any source, it begins with the PE
// after the one that was last found so.
func (c *Comm) find(from int, tag int32) (*link, int) {
	for k := range c.links {
		pe := (c.first + k) % len(c.links)
		if from != AnySource && from != pe {
			continue
		}
		l := &c.links[pe]
		for i := range l.unexpected {
			if tag == AnyTag || tag == l.unexpected[i].tag {
				return l, i
			}
		}
	}
	return nil, 0
}

func (c *Comm) probe(from, tag int, last *Last) bool {
	l, i := c.find(from, int32(tag))
	if l != nil {
		m := &l.unexpected[i]
		*last = Last{l.pe, int(m.tag), int(m.size)}
	}
	return l != nil
}

// unlist removes receive i from the list of those that have no message.
func (c *Comm) unlist(i int) {
	r := c.pending[i]
	c.pending = append(c.pending[:i], c.pending[i+1:]...)
	if r.direct && !r.posted {
		c.postable--
	}
	// A receive that was not posted may have held back those behind it.
	c.late = c.late || !r.posted
}

// deliver gives a message to a receive. If the receive was posted, the message has
// met it on its way, and the sender is told at once. Room for that reply is kept.
func (c *Comm) deliver(r *Request, l *link, m message) {
	if r.peer == AnySource {
		c.first = (l.pe + 1) % len(c.links)
	}
	r.last = Last{l.pe, int(m.tag), int(m.size)}
	if r.posted {
		c.stats.Gap++
	}
	if m.size > int64(len(r.buf)) {
		r.err = ErrTooLong
	} else if m.kind == announced {
		c.ask(r, l, m)
		return
	}
	if r.err == nil && m.kind == small {
		outline(r.buf[:m.size], m.word)
	} else if r.err == nil {
		src, _ := shmem.At[byte](c.w, int(m.word), int(m.size))
		shmem.Get(c.ctx, r.buf[:m.size], src, l.pe)
		r.err = c.ctx.Err()
	}
	e := entry{kind: pulled, ref: m.number, size: m.size}
	if r.posted {
		e.word, e.size = uint64(r.post), -1-m.size
		c.withdraw(l, e)
	} else if m.kind != small {
		l.replyLater(e)
	}
	c.received(r)
}

// withdraw writes a reply that withdraws a posted receive. The caller counts the
// message as taken only afterwards.
func (c *Comm) withdraw(l *link, e entry) {
	if l.wrote-l.drained >= l.back.slots {
		c.bad(l, e)
		return
	}
	l.reply(e)
}

// ask asks the sender for the data of an announced message.
func (c *Comm) ask(r *Request, l *link, m message) {
	l.asked[m.number] = r
	if !r.direct {
		r.post = m.number
		l.landing = append(l.landing, r)
		if len(l.landing) == 1 {
			l.land()
		}
		return
	}
	r.granted = int(m.size)
	e := entry{kind: grant, ref: m.number, word: uint64(r.sym.Offset()), size: m.size}
	if r.posted {
		e.tag, e.size = int32(r.post), -1-m.size
		c.withdraw(l, e)
	} else {
		l.replyLater(e)
	}
}

// land asks for the next pieces of the message that has the landing pieces.
func (l *link) land() {
	r, max := l.landing[0], l.c.opts.Piece
	for r.granted < r.last.Size && r.granted-r.at <= max {
		n := min(max, r.last.Size-r.granted)
		off := l.c.landing.Offset() + l.half(r.granted)
		l.replyLater(entry{kind: grant, ref: r.post, word: uint64(off), size: int64(n)})
		r.granted += n
	}
}

// half returns the landing piece for the data from byte at of a message on.
func (l *link) half(at int) int {
	n := l.c.opts.Piece
	return (2*l.pe + at/n%2) * n
}

// piece handles the arrival of data that was asked for.
func (c *Comm) piece(l *link, e entry) {
	r := l.asked[e.ref]
	if r == nil || e.size < 1 || e.size > int64(r.granted-r.at) {
		c.bad(l, e)
		return
	}
	n := int(e.size)
	if r.direct {
		if n != r.granted {
			c.bad(l, e)
			return
		}
	} else {
		if n != min(c.opts.Piece, r.last.Size-r.at) {
			c.bad(l, e)
			return
		}
		at := l.half(r.at)
		copy(r.buf[r.at:r.at+n], c.landing.Slice(at, at+n).Local())
	}
	r.at += n
	if r.at < r.last.Size {
		l.land()
		return
	}
	delete(l.asked, e.ref)
	c.received(r)
	if !r.direct {
		l.landing = l.landing[:copy(l.landing, l.landing[1:])]
		if len(l.landing) > 0 {
			l.land()
		}
	}
}

// arrived handles a message that was put into a posted receive.
func (c *Comm) arrived(l *link, e entry) {
	for i, r := range c.pending {
		if !r.posted || r.post != e.ref || r.peer != l.pe {
			continue
		}
		if e.size < 0 || e.size > int64(len(r.buf)) || e.tag < 0 || !r.takes(l.pe, e.tag) {
			c.bad(l, e)
			return
		}
		if e.size <= inHeader {
			outline(r.buf[:e.size], e.word)
		}
		r.last = Last{l.pe, int(e.tag), int(e.size)}
		c.unlist(i)
		c.received(r)
		return
	}
	c.unknown(l, e)
}

func (c *Comm) received(r *Request) {
	r.finished = true
	c.stats.Received++
}

// post posts those of the pending receives, from number from on, that may be posted.
// No message that was taken so far is for one of them.
//
// Messages and receives meet in the order of both. So a receive is not posted as long
// as an earlier one, of which the sender does not know, may take the same messages.
func (c *Comm) post(from int) {
	for i := from; i < len(c.pending); i++ {
		r := c.pending[i]
		if !r.direct || r.posted || c.blocked(i) {
			continue
		}
		l := &c.links[r.peer]
		if !l.spare() {
			c.late = true
			continue
		}
		l.lastPost++
		r.posted, r.post = true, l.lastPost
		c.postable--
		l.reply(entry{kind: post, word: uint64(r.sym.Offset()), tag: r.tag, ref: r.post, size: int64(len(r.buf))})
	}
}

// blocked reports whether an earlier receive that is not posted may take the same
// messages as pending receive i.
func (c *Comm) blocked(i int) bool {
	for _, r := range c.pending[:i] {
		if !r.posted && r.overlaps(c.pending[i]) {
			return true
		}
	}
	return false
}
