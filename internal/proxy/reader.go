package proxy

import (
	"net"
	"sync"
	"syscall"
)

// readSize is how much a read returns at most. It is what a record of SDP holds.
const readSize = 64 << 10

var readBuffers = sync.Pool{New: func() any { return new([readSize]byte) }}

// reader reads from a connection into a buffer that it borrows. Where the system can
// tell that nothing has arrived, it gives the buffer back before it waits, so that a
// connection that is idle holds none. It is used by one goroutine.
type reader struct {
	conn net.Conn        // immutable
	raw  syscall.RawConn // immutable; nil if conn can only be read as such
	try  func(fd uintptr) (done bool)

	buf *[readSize]byte // nil while nothing is borrowed
	n   int             // what the last try returned
	err error           // likewise
}

// newReader reads from c. The caller calls release in the end.
func newReader(c net.Conn) *reader {
	r := &reader{conn: c, raw: rawSocket(c)}
	r.try = r.tryOnce // bound here, so that next allocates nothing
	return r
}

// next waits until something has arrived and returns it. It is valid until the next
// call of a method. At the end of file the error is io.EOF.
func (r *reader) next() ([]byte, error) {
	for {
		if r.raw == nil {
			r.borrow()
			r.n, r.err = r.conn.Read(r.buf[:])
		} else if err := r.raw.Read(r.try); err != nil {
			return nil, err // closed
		}
		if r.n > 0 {
			return r.buf[:r.n], nil // an error comes again with the next call
		}
		if r.err != nil {
			return nil, r.err
		}
	}
}

func (r *reader) borrow() {
	if r.buf == nil {
		r.buf = readBuffers.Get().(*[readSize]byte)
	}
}

// release gives the buffer back.
func (r *reader) release() {
	if r.buf != nil {
		readBuffers.Put(r.buf)
		r.buf = nil
	}
}
