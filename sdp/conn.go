package sdp

import (
	"net"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/ntbnet/ntbnet/bounce"
	"github.com/ntbnet/ntbnet/internal/status"
)

// Conn is a connection. It implements net.Conn, io.ReaderFrom and io.WriterTo. Its
// methods may be called from several goroutines at the same time.
//
// As with package net, the garbage collector closes a Conn that the program has
// dropped, unless something that Peek or Reserve lent is out.
type Conn struct {
	pair          *bounce.Pair // the data path; immutable
	endpoint      *endpoint    // immutable
	local, remote net.Addr     // both an *Addr, or both a *net.TCPAddr; immutable
	dropped       runtime.Cleanup
}

// endpoint is the part of a connection that its Fabric keeps. It does not refer to the Conn. So
// a Conn that the program has dropped is garbage.
type endpoint struct {
	pair          *bounce.Pair // immutable
	fabric        *Fabric      // immutable
	local, remote net.Addr     // immutable
	release       func()       // releases the addresses; nil if there is nothing to release; immutable
	abort         atomic.Bool  // SetLinger(0) was called
	raw           descriptor
}

// newConn makes a connection. release, if not nil, is called when the connection is
// closed, or could not be made.
func newConn(f *Fabric, p *bounce.Pair, local, remote net.Addr, release func()) (*Conn, error) {
	e := &endpoint{pair: p, fabric: f, local: local, remote: remote, release: release}
	if err := f.add(e); err != nil {
		p.Abort()
		e.releaseAddresses()
		return nil, err
	}
	c := &Conn{pair: p, endpoint: e, local: local, remote: remote}
	if !f.stack.bubble {
		c.dropped = runtime.AddCleanup(c, (*endpoint).drop, e)
	}
	return c, nil
}

// Close ends the connection. Its errors are those of bounce.Pair.
func (e *endpoint) Close() error {
	raceRelease(e.pair)
	closing := e.pair.Close
	if e.abort.Load() {
		closing = e.pair.Abort
	}
	if err := closing(); err != nil {
		return err
	}
	e.raw.close()
	e.releaseAddresses()
	e.fabric.remove(e)
	return nil
}

// status returns what this process serves about the connection.
func (e *endpoint) status(counters bool) status.Connection {
	id := e.pair.Peer().ID()
	if !counters {
		return status.Connection{Node: id.Host(), Process: id.Process(), Count: 1}
	}
	n := e.pair.Stats()
	return status.Connection{
		Node: id.Host(), Process: id.Process(), Count: 1, Local: e.local.String(), Remote: e.remote.String(),
		Read: n.BytesRead, Inline: n.InlineBytes, MMIO: n.MMIOBytes, DMA: n.DMABytes,
		Doorbells: n.Doorbells, ReadWaits: n.ReadParks, RoomWaits: n.WriteParks,
	}
}

func (e *endpoint) releaseAddresses() {
	if e.release != nil {
		e.release()
	}
}

// drop closes the connection of a Conn that is garbage. Close may wait, which the
// collector's goroutine must not.
func (e *endpoint) drop() { go e.Close() }

func (c *Conn) opError(op string, err error) error { return opError(op, c.local, c.remote, err) }

// Read reads what has arrived, at least one byte, and waits for it. If p has room, it mostly returns
// a Write of up to 64 KiB whole: it waits for the rest while the other side goes on without stopping for
// a millisecond. After the other side's
// last byte it returns io.EOF if that side closed. It returns ECONNRESET if that side died
// or gave up, or closed without having read everything. As with TCP, a reset is returned
// once, by Read or Write. After that, Read returns io.EOF, and Write EPIPE. If p is empty,
// Read returns at once.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.pair.Read(p)
	raceAcquire(c.pair)
	if err != nil {
		err = c.opError(opRead, err)
	}
	runtime.KeepAlive(c)
	return n, err
}

// Write writes all of p to the other side, and waits for room there. When it returns, the
// bytes are in the other side's memory, and are not lost if this process ends then. Only if a
// DMA engine still has them, or the way leads over several nodes, are they still on their way:
// Close waits for them, and they are lost if this process ends without it. If the other side has closed,
// or closes while up to 64 KiB are being written, Write returns as if all had been written, as TCP
// does, and the next Write fails with EPIPE.
func (c *Conn) Write(p []byte) (int, error) {
	raceRelease(c.pair)
	n, err := c.pair.Write(p)
	if err != nil {
		err = c.opError(opWrite, err)
	}
	runtime.KeepAlive(c)
	return n, err
}

// Close ends the connection. It wakes Read and Write. What was written reaches
// the other side. Where it goes over several nodes, Close waits for that, unless nothing
// is heard of the other side for 2 s, and for 10 s at the most. If something has arrived
// that was not read, the other side gets ECONNRESET behind what was written, as with TCP,
// and Close does not wait.
func (c *Conn) Close() error {
	if err := c.endpoint.Close(); err != nil {
		return c.opError(opClose, err)
	}
	c.dropped.Stop()
	return nil
}

// CloseWrite ends the direction to the other side, which reads io.EOF after what was
// written. The error is ENOTCONN if both directions have ended already, or the other
// side gave up.
func (c *Conn) CloseWrite() error {
	raceRelease(c.pair)
	err := c.opError(opClose, c.pair.CloseWrite())
	runtime.KeepAlive(c)
	return err
}

// CloseRead makes Read return io.EOF where it would wait. What has arrived, or arrives
// later, can still be read, and as with TCP on Linux the other side is not informed.
// After CloseWrite too, what the other side writes resets the connection. Errors are
// those of CloseWrite.
func (c *Conn) CloseRead() error {
	err := c.opError(opClose, c.pair.CloseRead())
	runtime.KeepAlive(c)
	return err
}

// SetLinger with 0 makes Close abort the connection: the other side reads what has
// arrived and then ECONNRESET. Any other number changes nothing: see Close.
func (c *Conn) SetLinger(sec int) error {
	return c.setTCP(func() { c.endpoint.abort.Store(sec == 0) })
}

// LocalAddr returns the address of this endpoint: an *Addr, or, under network "tcp",
// a *net.TCPAddr.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr returns the address of the other endpoint, of the same type.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// set calls f, unless the connection is closed.
func (c *Conn) set(f func()) error { return c.option(nil, c.local, f) }

// setTCP is set for what net sets for TCP alone. Its errors have both addresses.
func (c *Conn) setTCP(f func()) error { return c.option(c.local, c.remote, f) }

func (c *Conn) option(source, addr net.Addr, f func()) error {
	if c.pair.Closed() {
		return opError(opSet, source, addr, bounce.ErrClosed)
	}
	f()
	runtime.KeepAlive(c)
	return nil
}

// SetDeadline sets both deadlines.
func (c *Conn) SetDeadline(t time.Time) error {
	return c.set(func() {
		c.pair.SetReadDeadline(t)
		c.pair.SetWriteDeadline(t)
	})
}

// SetReadDeadline makes Read fail with os.ErrDeadlineExceeded from t on. The zero
// time means never. It also applies to a Read that waits.
func (c *Conn) SetReadDeadline(t time.Time) error {
	return c.set(func() { c.pair.SetReadDeadline(t) })
}

// SetWriteDeadline is SetReadDeadline for Write, which may have written a part.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	return c.set(func() { c.pair.SetWriteDeadline(t) })
}

// SetNoDelay does nothing, since what was written is never held back. Like the
// methods below, it exists for programs that call it on a *net.TCPConn.
func (c *Conn) SetNoDelay(bool) error { return c.setTCP(func() {}) }

// SetKeepAlive does nothing, since the link notices the death of the other side without
// probes: at once over shared memory, within a second over a bridge whose attachment has a
// heartbeat.
func (c *Conn) SetKeepAlive(bool) error { return c.setTCP(func() {}) }

// SetKeepAlivePeriod does nothing, like SetKeepAlive.
func (c *Conn) SetKeepAlivePeriod(time.Duration) error { return c.setTCP(func() {}) }

// SetKeepAliveConfig does nothing, like SetKeepAlive.
func (c *Conn) SetKeepAliveConfig(net.KeepAliveConfig) error { return c.setTCP(func() {}) }

// MultipathTCP reports false: one link carries the connection.
func (c *Conn) MultipathTCP() (bool, error) { return false, nil }

// SetReadBuffer sets how large the bounce buffer from which Read reads may grow, in
// bytes, rounded up to a power of two from 4 KiB to 16 MiB. It begins at 2 KiB, or at
// up to 1 MiB if connections before needed that. It grows on demand, to 1 MiB, and unless
// this limit is set, for a long stream to 8 MiB.
// It shrinks when it was idle for some time.
func (c *Conn) SetReadBuffer(bytes int) error {
	return c.set(func() { c.pair.SetReadBuffer(bytes) })
}

// SetWriteBuffer sets how many bytes may be written that the other side has not
// read, rounded as for SetReadBuffer. The other side's read buffer is a limit too.
func (c *Conn) SetWriteBuffer(bytes int) error {
	return c.set(func() { c.pair.SetWriteBuffer(bytes) })
}

// WasReset reports whether the other side has reset the connection, or the link to it is down. Read says so only
// behind what had arrived before. WasReset waits for no other call.
func (c *Conn) WasReset() bool { return c.pair.WasReset() }

// Stats returns the connection's counters. It may be called after Close too.
func (c *Conn) Stats() Stats { return c.pair.Stats() }
