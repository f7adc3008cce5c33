package sdp

import (
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/bounce"
)

// Conn is a connection. It implements net.Conn, io.ReaderFrom and io.WriterTo.
// Its methods may be called at the same time from any goroutine.
type Conn struct {
	pair          *bounce.Pair // immutable; the data path
	host          *Host        // immutable
	local, remote net.Addr     // immutable; both an *Addr, or both a *net.TCPAddr
	release       func()       // gives the addresses back; nil if they are nobody's; immutable
	abort         atomic.Bool  // SetLinger(0) was called
}

// newConn makes a connection. release, if it is not nil, is called when the connection is
// closed, or not made.
func newConn(h *Host, p *bounce.Pair, local, remote net.Addr, release func()) (*Conn, error) {
	c := &Conn{pair: p, host: h, local: local, remote: remote, release: release}
	if err := h.add(c); err != nil {
		p.Abort()
		c.releaseAddresses()
		return nil, err
	}
	return c, nil
}

func (c *Conn) releaseAddresses() {
	if c.release != nil {
		c.release()
	}
}

func (c *Conn) opError(op string, err error) error { return opError(op, c.local, c.remote, err) }

// Read reads what has arrived, at least one byte, and waits for it. After the
// other side's last byte it returns io.EOF if that side closed, ECONNRESET if it
// died or gave up.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.pair.Read(p)
	raceAcquire(c.pair)
	if err != nil {
		err = c.opError(opRead, err)
	}
	return n, err
}

// Write writes all of p into the other side's memory, and waits for room there.
// When it returns, the bytes are there, unless a DMA engine still has them, for which
// Close waits: they are not lost when this process ends after that.
func (c *Conn) Write(p []byte) (int, error) {
	raceRelease(c.pair)
	n, err := c.pair.Write(p)
	if err != nil {
		err = c.opError(opWrite, err)
	}
	return n, err
}

// Close ends the connection. It wakes Read and Write. What was written reaches
// the other side. Where it goes over several nodes, Close waits for that, unless nothing
// is heard of the other side for 2 s.
func (c *Conn) Close() error {
	raceRelease(c.pair)
	end := c.pair.Close
	if c.abort.Load() {
		end = c.pair.Abort
	}
	if err := end(); err != nil {
		return c.opError(opClose, err)
	}
	c.releaseAddresses()
	c.host.remove(c)
	return nil
}

// CloseWrite ends the direction to the other side, which reads io.EOF after what
// was written.
func (c *Conn) CloseWrite() error {
	raceRelease(c.pair)
	return c.opError(opClose, c.pair.CloseWrite())
}

// CloseRead ends the direction from the other side: Read returns io.EOF, and the
// other side's Write fails with EPIPE.
func (c *Conn) CloseRead() error { return c.opError(opClose, c.pair.CloseRead()) }

// SetLinger with 0 makes Close abort the connection: the other side reads what
// has arrived and then ECONNRESET. With any other number, Close ends it in order,
// without waiting, since what was written is at the other side already.
func (c *Conn) SetLinger(sec int) error {
	if err := c.open(); err != nil {
		return err
	}
	c.abort.Store(sec == 0)
	return nil
}

// LocalAddr is this end's address: an *Addr, or, under network "tcp", a *net.TCPAddr.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr is the other end's address, likewise.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// open is the error of setting something on a closed connection.
func (c *Conn) open() error {
	if c.pair.Closed() {
		return c.opError(opSet, bounce.ErrClosed)
	}
	return nil
}

// SetDeadline sets both deadlines.
func (c *Conn) SetDeadline(t time.Time) error {
	if err := c.open(); err != nil {
		return err
	}
	c.pair.SetReadDeadline(t)
	c.pair.SetWriteDeadline(t)
	return nil
}

// SetReadDeadline makes Read fail with os.ErrDeadlineExceeded from t on. The zero
// time means never. It wakes a Read that waits.
func (c *Conn) SetReadDeadline(t time.Time) error {
	if err := c.open(); err != nil {
		return err
	}
	c.pair.SetReadDeadline(t)
	return nil
}

// SetWriteDeadline is SetReadDeadline for Write, which may have written a part.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	if err := c.open(); err != nil {
		return err
	}
	c.pair.SetWriteDeadline(t)
	return nil
}

// SetReadBuffer sets how large the bounce buffer that Read reads from may grow,
// in bytes, rounded up to a power of two from 4 KiB to 16 MiB. It begins at 2 KiB
// and grows on demand, to 1 MiB, and for a long stream to 8 MiB unless set. It shrinks
// when it was idle for some time.
func (c *Conn) SetReadBuffer(bytes int) error { return c.setBuffer(bytes, c.pair.SetReadBuffer) }

// SetWriteBuffer sets how many bytes may be written that the other side has not
// read, rounded likewise; what the other side's read buffer takes is a limit too.
func (c *Conn) SetWriteBuffer(bytes int) error { return c.setBuffer(bytes, c.pair.SetWriteBuffer) }

func (c *Conn) setBuffer(bytes int, set func(int)) error {
	if err := c.open(); err != nil {
		return err
	}
	if bytes <= 0 {
		return c.opError(opSet, fmt.Errorf("buffer of %d bytes: %w", bytes, syscall.EINVAL))
	}
	set(bytes)
	return nil
}

// Stats are the connection's counters. They can be asked after Close too.
func (c *Conn) Stats() Stats { return c.pair.Stats() }
