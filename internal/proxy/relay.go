package proxy

import (
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/ntbnet/ntbnet/internal/shm/unixsock"
	"github.com/ntbnet/ntbnet/sdp"
)

// relay joins two connections. It owns both.
type relay struct {
	client, target       net.Conn  // immutable
	toTarget, fromTarget direction // each owned by one goroutine of run
	turn                 int       // of its map; immutable
	about                *lastLine // what is known of it before it is over; immutable then

	first atomic.Int32 // the side that ended its direction first, or cut the connection
	watch watch        // cuts it when nothing else does
	once  sync.Once    // for abort
	cause error        // argument of abort; read after run
}

// side is who ends a connection.
type side int32

const (
	nobody side = iota
	byClient
	byTarget
	byProxy
)

func (s side) String() string { return [...]string{"", "client", "target", "proxy"}[s] }

// end notes who ended the connection, if it is the first one.
func (r *relay) end(by side) { r.first.CompareAndSwap(int32(nobody), int32(by)) }

// direction is one of the two streams of a relay.
type direction struct {
	// bytes counts what was passed on. Stats reads it.
	bytes atomic.Int64
	// clean is set when all bytes up to the end of file were passed on, before
	// CloseWrite. It pairs with the load in pump, see there.
	clean atomic.Bool
	// writing is set before a Write, and stays set behind one that failed. It pairs with watch.runs, and with pump.
	writing atomic.Bool

	watch  *watch  // of the relay; immutable
	out    *writer // set by copy
	failed bool    // the error of copy is that of a write
}

// wrote notes how a Write ended.
func (d *direction) wrote(err error) {
	d.failed = err != nil
	d.writing.Store(d.failed)
}

// splice has the kernel move bytes by io.Copy or io.CopyN. All are counted at the end.
func (d *direction) splice(move func() (int64, error)) error {
	d.writing.Store(true)
	d.watch.run()
	n, err := move()
	d.bytes.Add(n)
	d.wrote(err)
	d.failed = false // it may be the error of a read
	return err
}

// run copies both ways until both directions have ended, and closes both
// connections. It returns what cut the connection, or nil for a clean end.
func (r *relay) run() error {
	r.begin()
	var wg sync.WaitGroup
	wg.Go(func() { r.pump(&r.fromTarget, r.client, r.target, &r.toTarget, byTarget) })
	r.pump(&r.toTarget, r.target, r.client, &r.fromTarget, byClient)
	wg.Wait()
	r.watch.end()
	r.client.Close()
	r.target.Close()
	r.once.Do(func() {}) // waits for an abort from elsewhere; a later one has no effect
	return r.cause
}

// begin begins the watch, which the directions use.
func (r *relay) begin() {
	r.toTarget.watch, r.fromTarget.watch = &r.watch, &r.watch
	r.watch.begin(r)
}

// pump copies src, which is that side, to dst, and passes on how src ended.
func (r *relay) pump(d *direction, dst, src net.Conn, back *direction, of side) {
	err := d.copy(dst, src)
	if err != nil && (d.failed || errors.Is(err, syscall.EPIPE)) {
		of = byClient + byTarget - of // dst is to blame
	}
	// A kernel reports a reset once, to a reader or to a writer. If the other
	// direction's write got it, the read here sees a false end of file. A
	// connection may also be down because both sides closed it in order. Then the
	// other direction has set clean before it closed.
	if err == nil && back.writing.Load() && isDown(src) && !back.clean.Load() {
		err = syscall.ECONNRESET
	}
	if err == nil {
		r.end(of)
		d.clean.Store(true)
		if back.clean.Load() {
			return // Close is dst's end of file
		}
		if err = closeWrite(dst); err != nil {
			of = byClient + byTarget - of
		} else {
			r.watch.halfClosed()
		}
	}
	if err != nil {
		r.abort(err, of)
	}
}

// abort resets both connections, which ends both directions. Only the first call
// has an effect.
func (r *relay) abort(cause error, by side) {
	r.once.Do(func() {
		r.cause = cause
		r.first.Store(int32(by))
		reset(r.client)
		reset(r.target)
	})
}

// copy copies src to dst until end of file. While nothing arrives, it holds no buffer, and between TCP
// connections no pipe. Data of an SDP connection is written straight from its bounce buffer. All is counted as it
// is written, but between TCP and a Unix socket at the end.
func (d *direction) copy(dst, src net.Conn) error {
	d.out = newWriter(dst, d)
	if c, ok := src.(*sdp.Conn); ok {
		return d.copyInPlace(dst, c)
	}
	if runtime.GOOS == "linux" && betweenTCPAndUnix(dst, src) {
		return d.splice(func() (int64, error) { return io.Copy(dst, src) })
	}
	r := newReader(src)
	defer r.release()
	for {
		n, err := d.copyRead(dst, r)
		for err == nil && n >= readSize {
			n, err = d.copyMore(dst, r)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func betweenTCPAndUnix(a, b net.Conn) bool {
	_, aTCP := a.(*net.TCPConn)
	_, bTCP := b.(*net.TCPConn)
	return aTCP && unixsock.IsPlain(b) || unixsock.IsPlain(a) && bTCP
}

// copyRead copies what one read returns, and returns how much that was.
func (d *direction) copyRead(dst net.Conn, src *reader) (int, error) {
	b, err := src.next()
	if err != nil {
		return 0, err
	}
	return d.out.write(b)
}

// copyMore has the kernel move from one TCP connection to another what has arrived behind a read that filled its
// buffer, if that is as much again.
func (d *direction) copyMore(dst net.Conn, src *reader) (n int, err error) {
	_, fromTCP := src.conn.(*net.TCPConn)
	if _, toTCP := dst.(*net.TCPConn); !fromTCP || !toTCP || src.raw == nil {
		return 0, nil
	}
	if n = src.arrived(); n < readSize {
		return 0, nil
	}
	return n, d.splice(func() (int64, error) { return io.CopyN(dst, src.conn, int64(n)) })
}

// copyInPlace does what io.Copy would do by WriteTo, and also counts. A Write that came in several
// records is passed on by one Write.
func (d *direction) copyInPlace(dst net.Conn, src *sdp.Conn) error {
	for {
		b, err := src.Peek()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if src.More() {
			src.Discard(0)
			if err := d.copyWhole(dst, src); err != nil {
				return err
			}
			continue
		}
		n, err := d.out.write(b)
		src.Discard(n)
		if err != nil {
			return err
		}
	}
}

// copyWhole copies what has arrived, and the rest of a Write of which a part has, through a buffer.
func (d *direction) copyWhole(dst net.Conn, src *sdp.Conn) error {
	buf := readBuffers.Get().(*[readSize]byte)
	defer readBuffers.Put(buf)
	n, err := src.Read(buf[:])
	if err != nil {
		return err
	}
	_, err = d.out.write(buf[:n])
	return err
}

func closeWrite(c net.Conn) error {
	if h, ok := c.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return errors.ErrUnsupported
}

// reset closes c so that its peer gets an error rather than an end of file, if the
// network has resets. Bytes on the way to the peer are lost.
func reset(c net.Conn) {
	if l, ok := c.(interface{ SetLinger(sec int) error }); ok {
		l.SetLinger(0)
	}
	c.Close()
}
