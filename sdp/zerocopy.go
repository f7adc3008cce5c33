package sdp

import (
	"io"
	"net"
	"os"
	"runtime"
)

// Peek waits for data and returns some of it where it lies, in the bounce buffer: at least
// one byte, and at most one record, which is up to 64 KiB, and may be a part of a Write (see More). It is valid until Discard,
// which must follow. Until then other Reads of this connection wait, and the other side
// can write only into the rest of the buffer. Other connections are not held up. Close
// does not wait, and takes what is lent as read.
//
// Where the other side is a process of the same user, it could change the bytes meanwhile: a
// caller that must not be deceived by that copies them first, or uses Read. Where it is of
// another user, or the kernel does not know of which, as that of another node, Peek returns a
// copy. What is not discarded is then the same for the next Peek or Read.
//
// Errors are those of Read; with one, no Discard follows.
func (c *Conn) Peek() ([]byte, error) {
	b, err := c.pair.Peek()
	raceAcquire(c.pair)
	runtime.KeepAlive(c)
	return b, c.opError(opRead, err)
}

// Discard ends what Peek began. The first n bytes that Peek returned count as read.
// It panics if n is more than that.
func (c *Conn) Discard(n int) {
	c.pair.Discard(n)
	runtime.KeepAlive(c)
}

// More reports whether what Peek returned is followed by more of the same Write, which a Read would
// go on with. It is called between Peek and Discard.
func (c *Conn) More() bool { return c.pair.More() }

// Reserve waits for room in the other side's bounce buffer and returns some of it
// to be filled, at least one byte and at most n. It must only be written, since on
// a bridge reading it would be very slow. It is valid until Commit, which must
// follow. Until then other Writes of this connection wait. Close does not.
//
// Errors are those of Write; with one, no Commit follows. Where Write would return as if all
// had been written, Reserve returns memory of which nothing is sent. It panics if n is less
// than 1.
func (c *Conn) Reserve(n int) ([]byte, error) {
	b, err := c.pair.Reserve(n)
	runtime.KeepAlive(c)
	return b, c.opError(opWrite, err)
}

// Commit ends what Reserve began, and sends the first n bytes of it. 0 sends
// nothing. It panics if n is more than Reserve returned.
func (c *Conn) Commit(n int) {
	raceRelease(c.pair)
	c.pair.Commit(n)
	runtime.KeepAlive(c)
}

// WriteTo writes to w what arrives, until io.EOF. A file, a socket and another Conn
// take it straight from the bounce buffer if the other side is a process of the same user.
// Other writers might read it twice, which the other side could abuse, and get a copy. If the
// other side is of another user, or it is not known of which, all get a copy.
func (c *Conn) WriteTo(w io.Writer) (n int64, err error) {
	switch w.(type) {
	case *Conn, *net.TCPConn, *net.UnixConn, *os.File:
	default:
		_, n, err = copyThrough(w.Write, c.Read)
		return n, c.copyError(opWriteTo, err)
	}
	for {
		k, err := c.writePiece(w)
		n += int64(k)
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, c.copyError(opWriteTo, err)
		}
	}
}

// writePiece writes to w what lies next in our buffer.
func (c *Conn) writePiece(w io.Writer) (n int, err error) {
	b, err := c.Peek()
	if err != nil {
		return 0, err
	}
	defer func() { c.Discard(n) }() // even if w panics
	n, err = w.Write(b)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	return min(max(n, 0), len(b)), err
}
