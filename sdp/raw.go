package sdp

import (
	"errors"
	"runtime"
	"syscall"

	"github.com/ntbnet/ntbnet/bounce"
)

var (
	_ syscall.Conn    = (*Conn)(nil)
	_ syscall.RawConn = (*rawConn)(nil)
)

// SyscallConn returns access to a descriptor that stands for the connection. It is a
// socket, but not one that the data passes through. It is made when a method first needs
// it, and costs two descriptors until Close. This works on Linux only. On others the error
// is errors.ErrUnsupported.
//
// Programs use it to find out whether an idle connection is still good, as go-redis and the
// MySQL driver do by a read that does not wait. During a call of the RawConn's Read, a read
// of the descriptor returns what it would return on a TCP connection: EAGAIN if nothing has
// arrived, some of what has, and 0 bytes at the end. What is read there, other than with
// MSG_PEEK, is not returned again by Read of the Conn. After a reset, too, the read returns
// 0 bytes.
//
// Outside of such a call, and during one of Control, the descriptor is empty until the
// other side closes, closes its direction, gives up or dies. Then it polls as readable,
// even while some earlier data is not read. It is a Unix socket. So its socket options are
// those of a Unix socket, and its peer credentials are those of this process.
//
// Nothing can be written to the descriptor. RawConn.Write returns errors.ErrUnsupported, and
// after Close net.ErrClosed, as the other methods do.
func (c *Conn) SyscallConn() (syscall.RawConn, error) {
	if !descriptors {
		return nil, c.opError(opRawControl, errors.ErrUnsupported)
	}
	return &rawConn{c}, nil
}

type rawConn struct{ c *Conn }

// Control implements syscall.RawConn.
func (r *rawConn) Control(f func(fd uintptr)) error {
	err := r.c.endpoint.control(f)
	runtime.KeepAlive(r)
	return opError(opRawControl, nil, r.c.local, err)
}

// Read implements syscall.RawConn. While f runs, the descriptor contains what there is to
// read.
func (r *rawConn) Read(f func(fd uintptr) (done bool)) error {
	err := r.c.endpoint.rawRead(f)
	raceAcquire(r.c.pair)
	runtime.KeepAlive(r)
	return r.c.opError(opRawRead, err)
}

// Write implements syscall.RawConn. It does not call f.
func (r *rawConn) Write(func(fd uintptr) (done bool)) error {
	err := errors.ErrUnsupported
	if r.c.pair.Closed() {
		err = bounce.ErrClosed
	}
	return r.c.opError(opRawWrite, err)
}
