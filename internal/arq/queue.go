package arq

// kept is a frame that is not acknowledged.
type kept struct {
	off, n int // of its body in the buffer
	kind   Kind
	asks   bool // for an acknowledgement at once
}

// queue is the retransmit queue: it keeps frames from when their bodies are gathered until
// they are acknowledged. The bodies lie in a ring of bytes, each in one piece. It only
// manages memory.
type queue struct {
	buf    []byte
	frames []kept // a ring; its length is a power of two
	head   int
	count  int
	tail   int // where the next body goes

	// The body that is being gathered, at tail. openMax is 0 if there is none.
	openLen int
	openMax int
	again   bool // it was complete, and is open again
}

// bare is how many of the frames are without a body at least, so that what asks for an
// acknowledgement finds room.
const bare = 8

func (q *queue) at(i int) *kept { return &q.frames[(q.head+i)&(len(q.frames)-1)] }

func (q *queue) body(k *kept) []byte { return q.buf[k.off : k.off+k.n : k.off+k.n] }

// fit returns the offset where a new body of up to n bytes would begin, if there is room.
func (q *queue) fit(n int) (at int, ok bool) {
	if q.count >= len(q.frames)-bare {
		return 0, false
	}
	first := q.oldest()
	switch {
	case first < 0:
		return 0, len(q.buf) >= n
	case first < q.tail && len(q.buf)-q.tail >= n: // the bodies lie between
		return q.tail, true
	case first < q.tail:
		return 0, first > n // not equal: full and empty would be the same
	}
	return q.tail, first-q.tail > n
}

// oldest returns the offset of the oldest body, or -1 if there is none.
func (q *queue) oldest() int {
	for i := range q.count {
		if k := q.at(i); k.n > 0 {
			return k.off
		}
	}
	return -1
}

// begin opens a body of up to n bytes. It returns false if there is no room.
func (q *queue) begin(n int) bool {
	at, ok := q.fit(n)
	if ok {
		q.tail, q.openLen, q.openMax = at, 0, n
	}
	return ok
}

// extend returns n more bytes of the open body, which must have them.
func (q *queue) extend(n int) []byte {
	at := q.tail + q.openLen
	q.openLen += n
	return q.buf[at : at+n]
}

// end makes a frame of the open body.
func (q *queue) end() {
	n := q.openLen
	q.push(kept{kind: Data, off: q.tail, n: n})
	q.tail += n
	q.openMax, q.again = 0, false
}

func (q *queue) push(k kept) {
	*q.at(q.count) = k
	q.count++
}

// reopens reports whether reopen would go on with the last frame.
func (q *queue) reopens(need, n int) bool {
	k := *q.at(q.count - 1)
	if k.n == 0 || k.asks || k.off+k.n != q.tail || k.n+need > n {
		return false
	}
	limit := len(q.buf)
	if first := q.oldest(); first > k.off {
		limit = first - 1 // the bodies wrap: this one is before the oldest
	}
	return limit-k.off >= n
}

// reopen goes on with the last frame's body, up to n bytes, if that leaves need bytes and
// there is room behind it. It reports whether it did.
func (q *queue) reopen(need, n int) bool {
	if !q.reopens(need, n) {
		return false
	}
	q.count--
	k := *q.at(q.count)
	q.tail, q.openLen, q.openMax, q.again = k.off, k.n, n, true
	return true
}

// drop forgets the first n frames.
func (q *queue) drop(n int) {
	q.head = (q.head + n) & (len(q.frames) - 1)
	q.count -= n
}
