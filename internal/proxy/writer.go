package proxy

import (
	"net"
	"syscall"
)

// writer writes to a connection for one direction of a relay. It is used by one goroutine.
type writer struct {
	conn net.Conn        // immutable
	raw  syscall.RawConn // nil if conn has none; immutable
	try  func(fd uintptr) (done bool)
	of   *direction

	rest []byte // what the call under way has not written
	err  error  // of the last try
}

func newWriter(c net.Conn, of *direction) *writer {
	w := &writer{conn: c, raw: rawSocket(c), of: of}
	w.try = w.tryOnce // bound here, so that write does not allocate
	return w
}

// write writes all of b, or returns an error.
func (w *writer) write(b []byte) (n int, err error) {
	w.of.writing.Store(true)
	if w.raw == nil {
		w.of.watch.run()
		n, err = w.conn.Write(b)
		w.of.bytes.Add(int64(n))
	} else {
		w.rest, w.err = b, nil
		if err = w.raw.Write(w.try); err == nil {
			err = w.err
		}
		n = len(b) - len(w.rest)
	}
	w.of.wrote(err)
	return n, err
}
