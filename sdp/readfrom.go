package sdp

import (
	"io"
	"net"
	"os"
	"reflect"
	"runtime"
	"sync"
	"syscall"
)

// copyPiece is how much ReadFrom and WriteTo copy at a time.
const copyPiece = 64 << 10

// copyBuffers are for copies that are not made in place.
var copyBuffers = sync.Pool{New: func() any { return new([copyPiece]byte) }}

// ReadFrom writes what it reads from r, until io.EOF, and returns how many bytes it has taken
// from r. If a write fails, what was read and not written is put back, where r is a regular
// file or another io.Seeker, or an io.LimitedReader of one. Otherwise it is lost.
//
// What comes from a regular file is kept together: other Writes wait until ReadFrom returns.
func (c *Conn) ReadFrom(r io.Reader) (int64, error) {
	write := c.Write
	if isFile(r) && c.pair.HoldWrites() == nil {
		defer runtime.KeepAlive(c)
		defer c.pair.ReleaseWrites()
		write = c.writeHeld
	}
	taken, written, err := copyThrough(write, r.Read)
	if taken > written && putBack(r, taken-written) {
		taken = written
	}
	return taken, c.copyError(opReadFrom, err)
}

// writeHeld is Write between HoldWrites and ReleaseWrites, with the errors of sendfile.
func (c *Conn) writeHeld(p []byte) (int, error) {
	raceRelease(c.pair)
	n, err := c.pair.WriteHeld(p)
	return n, cause(opReadFrom, err)
}

// copyError makes the error of a copy from the one of its reads or writes, which may be another's.
func (c *Conn) copyError(op string, err error) error {
	if err == nil {
		return nil
	}
	return &net.OpError{Op: op, Net: networkOf(c.local, c.remote), Source: c.local, Addr: c.remote, Err: err}
}

// isFile reports whether r reads a regular file.
func isFile(r io.Reader) bool {
	if l, ok := r.(*io.LimitedReader); ok {
		r = l.R
	}
	if _, ok := r.(*os.File); !ok && reflect.TypeOf(r).PkgPath() != "os" { // its type of files for io.Copy
		return false
	}
	f, ok := r.(interface{ Stat() (os.FileInfo, error) })
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode().IsRegular()
}

// putBack has r return its last n bytes once more, and reports whether it does.
func putBack(r io.Reader, n int64) bool {
	if l, ok := r.(*io.LimitedReader); ok {
		ok = putBack(l.R, n)
		if ok {
			l.N += n
		}
		return ok
	}
	s, ok := r.(io.Seeker)
	if _, other := r.(syscall.Conn); !ok || other && !isFile(r) { // a device's Seek may do nothing
		return false
	}
	_, err := s.Seek(-n, io.SeekCurrent)
	return err == nil
}

// WriteBuffers writes all of v, as net.Buffers does to a TCP connection: no other Write comes in
// between. What was written is removed from v. With its method WriteTo each buffer is a
// Write of its own.
func (c *Conn) WriteBuffers(v *net.Buffers) (int64, error) {
	raceRelease(c.pair)
	n, err := c.writeBuffers(*v)
	runtime.KeepAlive(c)
	consume(v, n)
	return n, c.opError(opWritev, err)
}

func (c *Conn) writeBuffers(v net.Buffers) (n int64, err error) {
	size := 0
	for _, p := range v {
		size += len(p)
	}
	if size <= copyPiece { // in one record, and so in one read, where there is room
		buf := copyBuffers.Get().(*[copyPiece]byte)
		defer copyBuffers.Put(buf)
		all := buf[:0]
		for _, p := range v {
			all = append(all, p...)
		}
		k, err := c.pair.Write(all)
		return int64(k), err
	}
	if err := c.pair.HoldWrites(); err != nil {
		return 0, err
	}
	defer c.pair.ReleaseWrites()
	for _, p := range v {
		k, err := c.pair.WriteHeld(p)
		n += int64(k)
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// consume removes the first n bytes of v.
func consume(v *net.Buffers, n int64) {
	for len(*v) > 0 {
		first := &(*v)[0]
		if int64(len(*first)) > n {
			*first = (*first)[n:]
			return
		}
		n -= int64(len(*first))
		*first = nil
		*v = (*v)[1:]
	}
}

// copyThrough copies through a buffer until read returns io.EOF. It returns how many bytes it
// has taken, and how many of them it has written.
func copyThrough(write, read func([]byte) (int, error)) (taken, written int64, err error) {
	buf := copyBuffers.Get().(*[copyPiece]byte)
	defer copyBuffers.Put(buf)
	for {
		k, rerr := read(buf[:])
		if k > 0 {
			w, werr := write(buf[:k])
			taken, written = taken+int64(k), written+int64(w)
			if werr == nil && w < k {
				werr = io.ErrShortWrite
			}
			if werr != nil {
				return taken, written, werr
			}
		}
		if rerr == io.EOF {
			return taken, written, nil
		}
		if rerr != nil {
			return taken, written, rerr
		}
	}
}
