package ring

// retained is a frame that is not acknowledged.
type retained struct {
	off, n int // of its body in the buffer
	bells  uint32
	ask    uint32
	answer uint32
}

// retention keeps the frames of a tunnel from when their stores are gathered until
// they are acknowledged. Their bodies lie in a ring of bytes, each in one piece. It
// only manages memory. The tunnel's mu guards it.
type retention struct {
	buf    []byte
	frames []retained // a ring
	head   int
	count  int
	tail   int // where the next body goes

	open    bool // a body is being gathered at tail
	openLen int
	openMax int
}

// maxFrames limits the frames without acknowledgement, whatever their size. The
// last of them are for frames without a body.
const (
	maxFrames  = 1 << 12
	bodyFrames = maxFrames - 8
)

func newRetention(size int) retention {
	return retention{buf: alignedBytes(size), frames: make([]retained, maxFrames)}
}

func (r *retention) at(i int) *retained { return &r.frames[(r.head+i)&(maxFrames-1)] }

func (r *retention) body(f *retained) []byte { return r.buf[f.off : f.off+f.n] }

// fits reports whether begin would open a body of up to n bytes.
func (r *retention) fits(n int) bool {
	_, ok := r.place(n)
	return ok
}

// place returns the offset where a new body of up to n bytes would begin, if there
// is room.
func (r *retention) place(n int) (at int, ok bool) {
	if r.count >= bodyFrames {
		return 0, false
	}
	first := r.oldest()
	switch {
	case first < 0:
		return 0, len(r.buf) >= n
	case first < r.tail && len(r.buf)-r.tail >= n: // the bodies lie between
		return r.tail, true
	case first < r.tail:
		return 0, first > n // not equal: full and empty would be the same
	}
	return r.tail, first-r.tail > n
}

// oldest returns the offset of the oldest body, or -1 if there is none.
func (r *retention) oldest() int {
	for i := range r.count {
		if f := r.at(i); f.n > 0 {
			return f.off
		}
	}
	return -1
}

// begin opens a body of up to n bytes. It returns false if there is no room.
func (r *retention) begin(n int) bool {
	at, ok := r.place(n)
	if ok {
		r.tail = at
		r.open, r.openLen, r.openMax = true, 0, n
	}
	return ok
}

// extend returns n more bytes of the open body, which must have them.
func (r *retention) extend(n int) []byte {
	at := r.tail + r.openLen
	r.openLen += n
	return r.buf[at : at+n]
}

// left returns how many bytes the open body has left.
func (r *retention) left() int { return r.openMax - r.openLen }

// end makes a frame of the open body.
func (r *retention) end() {
	r.push(retained{off: r.tail, n: r.openLen})
	r.tail += r.openLen
	r.open = false
}

func (r *retention) push(f retained) {
	*r.at(r.count) = f
	r.count++
}

// reopens reports whether reopen would go on with the last frame.
func (r *retention) reopens(need, n int) bool {
	f := *r.at(r.count - 1)
	if f.n == 0 || f.bells|f.ask|f.answer != 0 || f.off+f.n != r.tail || f.n+need > n {
		return false
	}
	limit := len(r.buf)
	if first := r.oldest(); first > f.off {
		limit = first - 1 // the bodies wrap: this one is before the oldest
	}
	return limit-f.off >= n
}

// reopen goes on with the last frame's body, up to n bytes, if that leaves need
// bytes and there is room behind it. It reports whether it did.
func (r *retention) reopen(need, n int) bool {
	if !r.reopens(need, n) {
		return false
	}
	r.count--
	f := *r.at(r.count)
	r.tail = f.off
	r.open, r.openLen, r.openMax = true, f.n, n
	return true
}

// lastAsk returns the last order that the first n frames ask for, or 0 if there is
// none.
func (r *retention) lastAsk(n int) uint32 {
	for i := n - 1; i >= 0; i-- {
		if ask := r.at(i).ask; ask != 0 {
			return ask
		}
	}
	return 0
}

// drop forgets the first n frames.
func (r *retention) drop(n int) {
	r.head = (r.head + n) & (maxFrames - 1)
	r.count -= n
}

// bytes returns how many bytes the frames take.
func (r *retention) bytes() int {
	n := 0
	for i := range r.count {
		n += r.at(i).n
	}
	return n
}
