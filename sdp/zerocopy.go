package sdp

import "io"

// Peek waits for data and returns some of it where it lies, in the bounce
// buffer: at least one byte, at most one record, which is up to 64 KiB. It is
// valid until Discard, which must follow. Until then other Reads of this
// connection wait, and the other side can write only into what is left of the
// buffer; other connections are not held back. Close does not wait.
//
// The other side could change the bytes meanwhile. Who must not be deceived by it
// copies them first, or uses Read.
//
// Errors are those of Read; with one, no Discard follows.
func (c *Conn) Peek() ([]byte, error) {
	b, err := c.pair.Peek()
	raceAcquire(c.pair)
	if err != nil {
		err = c.opError(opRead, err)
	}
	return b, err
}

// Discard ends what Peek began: the first n bytes that it returned count as
// read. It panics if n is more than that.
func (c *Conn) Discard(n int) { c.pair.Discard(n) }

// Reserve waits for room in the other side's bounce buffer and returns some of
// it, at least one byte and at most n, to be filled. It is to be written only: on
// a bridge, reading it would be very slow. It is valid until Commit, which must
// follow. Until then other Writes of this connection wait; Close does not.
//
// Errors are those of Write; with one, no Commit follows. It panics if n is less
// than 1.
func (c *Conn) Reserve(n int) ([]byte, error) {
	b, err := c.pair.Reserve(n)
	if err != nil {
		err = c.opError(opWrite, err)
	}
	return b, err
}

// Commit ends what Reserve began, and sends the first n bytes of it; 0 sends
// nothing. It panics if n is more than Reserve returned.
func (c *Conn) Commit(n int) {
	raceRelease(c.pair)
	c.pair.Commit(n)
}

// copyPiece is how much ReadFrom reserves at a time.
const copyPiece = 64 << 10

// ReadFrom writes what it reads from r, until io.EOF. r reads into the other
// side's bounce buffer; nothing is copied in between.
func (c *Conn) ReadFrom(r io.Reader) (n int64, err error) {
	for {
		b, err := c.Reserve(copyPiece)
		if err != nil {
			// It is an error only if there is something to write.
			var one [1]byte
			if k, rerr := r.Read(one[:]); k == 0 && rerr != nil {
				err = rerr
			}
			if err == io.EOF {
				err = nil
			}
			return n, err
		}
		k, err := r.Read(b)
		c.Commit(max(k, 0))
		n += int64(max(k, 0))
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

// WriteTo writes to w what arrives, until io.EOF. w reads it where it lies;
// nothing is copied in between.
func (c *Conn) WriteTo(w io.Writer) (n int64, err error) {
	for {
		b, err := c.Peek()
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		k, err := w.Write(b)
		if err == nil && k < len(b) {
			err = io.ErrShortWrite
		}
		k = min(max(k, 0), len(b))
		c.Discard(k)
		n += int64(k)
		if err != nil {
			return n, err
		}
	}
}
