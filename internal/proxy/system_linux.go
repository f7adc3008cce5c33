package proxy

import (
	"errors"
	"io"
	"math"
	"net"
	"os"
	"syscall"

	"github.com/ntbnet/ntbnet/sdp"
)

// isDown reports whether a TCP connection is closed in the kernel: by a reset, or
// because both sides have ended it.
func isDown(c net.Conn) bool {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return false
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return true
	}
	down := false
	err = raw.Control(func(fd uintptr) {
		_, err := syscall.Getpeername(int(fd))
		down = errors.Is(err, syscall.ENOTCONN)
	})
	return down || err != nil // err: abort is closing it at the moment
}

// rawSocket returns c's descriptor, or nil if c is not a socket of the kernel.
func rawSocket(c net.Conn) syscall.RawConn {
	s, ok := c.(syscall.Conn)
	if _, is := c.(*sdp.Conn); is || !ok { // which would make a socket
		return nil
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return nil // closed: Read returns that
	}
	return raw
}

// wakesWithin is how long a Write to a socket is at least of which the kernel may wake the reader before it
// has taken all. The rest is mostly there when the first part has been read: see BenchmarkWholeWrites in
// integration, 32768/new/proxies.
const wakesWithin = 16 << 10

// tryOnce reads what has arrived. If there is nothing, it gives the buffer back and
// returns false.
func (r *reader) tryOnce(fd uintptr) (done bool) {
	r.borrow()
	for {
		r.n, r.err = readNow(int(fd), r.buf[:])
		switch r.err {
		case nil:
			if r.n == 0 {
				r.err = io.EOF
			}
			if r.n >= wakesWithin {
				r.readOn(int(fd))
			}
			return true
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			r.release()
			return false
		}
		r.n, r.err = 0, os.NewSyscallError("read", r.err)
		return true
	}
}

// readOn reads what else has arrived. An error is that of the next call, since the kernel reports it once.
func (r *reader) readOn(fd int) {
	for r.n < readSize {
		n, err := readNow(fd, r.buf[r.n:])
		switch {
		case n > 0:
			r.n += n
			continue
		case err == nil:
			r.err = io.EOF
		case err != syscall.EAGAIN && err != syscall.EINTR:
			r.err = os.NewSyscallError("read", err)
		}
		return
	}
}

// tryOnce writes what the socket takes. If that is not all, it returns false, and there are looks at the relay.
func (w *writer) tryOnce(fd uintptr) (done bool) {
	for len(w.rest) > 0 {
		n, err := writeNow(int(fd), w.rest)
		switch err {
		case nil:
			w.rest = w.rest[n:]
			w.of.bytes.Add(int64(n))
		case syscall.EINTR:
		case syscall.EAGAIN:
			w.of.watch.run()
			return false
		default:
			w.err = os.NewSyscallError("write", err)
			return true
		}
	}
	return true
}

// descriptorLimit returns how many descriptors this process may have. Go has raised that as far as it may.
func descriptorLimit() int {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil || l.Cur > math.MaxInt32 {
		return math.MaxInt32
	}
	return int(l.Cur)
}

// isListener reports whether a file is a socket that listens for streams.
func isListener(f *os.File) bool {
	raw, err := f.SyscallConn()
	if err != nil {
		return false
	}
	is := false
	err = raw.Control(func(fd uintptr) {
		kind, err := syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_TYPE)
		listens, bad := syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_ACCEPTCONN)
		is = err == nil && bad == nil && kind == syscall.SOCK_STREAM && listens != 0
	})
	return is && err == nil
}
