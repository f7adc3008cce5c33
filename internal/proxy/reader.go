package proxy

import (
	"net"
	"sync"
	"syscall"

	"github.com/ntbnet/ntbnet/internal/shm/unixsock"
)

// readSize is the most that a read returns. A record of SDP holds as much.
const readSize = 64 << 10

var readBuffers = sync.Pool{New: func() any { return new([readSize]byte) }}

// reader reads from a connection into a buffer that it borrows. Where the system can
// tell that nothing has arrived, it gives the buffer back before it waits. So an
// idle connection holds none. It is used by one goroutine.
type reader struct {
	conn net.Conn        // immutable
	raw  syscall.RawConn // nil if conn has none; immutable
	try  func(fd uintptr) (done bool)

	buf *[readSize]byte // nil while nothing is borrowed
	n   int             // result of the last try
	err error           // of the last try, behind its n bytes
}

// newReader returns a reader of c. The caller finally calls release.
func newReader(c net.Conn) *reader {
	r := &reader{conn: c, raw: rawSocket(c)}
	r.try = r.tryOnce // bound here, so that next does not allocate
	return r
}

// next waits until data has arrived and returns it. The data is valid until the
// next call of a method. At the end of file the error is io.EOF.
func (r *reader) next() ([]byte, error) {
	if r.err != nil {
		return nil, r.err
	}
	for {
		if r.raw == nil {
			if c, ok := r.conn.(*unixsock.Conn); ok {
				if err := c.Wait(); err != nil {
					return nil, err
				}
			}
			r.borrow()
			r.n, r.err = r.conn.Read(r.buf[:])
		} else if err := r.raw.Read(r.try); err != nil {
			return nil, err // closed
		}
		if r.n > 0 {
			return r.buf[:r.n], nil
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
