package bounce

import "sync"

// private is the copy of what was lent of a record, where the peer may be of another user. The
// peer can change the payload in the queue at any time, so what is lent to a caller, who may
// check it first and use it later, is copied once, and the same until it counts as read.
type private struct {
	wanted bool            // immutable after newPair
	buf    *[maxPiece]byte // nil while nothing is lent and the reader sleeps
	rest   []byte          // of buf: the first bytes of the payload that is not read yet, or nothing
}

var privateBuffers = sync.Pool{New: func() any { return new([maxPiece]byte) }}

// of returns the copy of the first bytes of a payload, and makes it unless there is one.
func (c *private) of(payload []byte) []byte {
	if len(c.rest) == 0 {
		if c.buf == nil {
			c.buf = privateBuffers.Get().(*[maxPiece]byte)
		}
		c.rest = c.buf[:copy(c.buf[:], payload)]
	}
	return c.rest[:len(c.rest):len(c.rest)]
}

// get moves bytes of the copy to p, and returns how many.
func (c *private) get(p []byte) int {
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n
}

// drop removes the first n bytes of the copy, if there is one.
func (c *private) drop(n int) {
	if c.wanted {
		c.rest = c.rest[n:]
	}
}

// release gives the buffer back while it is empty.
func (c *private) release() {
	if c.buf != nil && len(c.rest) == 0 {
		privateBuffers.Put(c.buf)
		c.buf, c.rest = nil, nil
	}
}
