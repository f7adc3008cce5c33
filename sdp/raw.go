package sdp

import (
	"errors"
	"runtime"
	"syscall"
)

var (
	_ syscall.Conn    = (*Conn)(nil)
	_ syscall.RawConn = (*rawConn)(nil)
)

// SyscallConn returns access to a descriptor that stands for the connection: a socket, but
// not one that the data goes through. It is made when a method first needs it, and costs
// two descriptors until Close. On Linux only; elsewhere the error is errors.ErrUnsupported.
//
// Programs use it to find out whether an idle connection is still good, as go-redis and the
// MySQL driver do by a read that does not wait. In a call of Read of the RawConn, a read of
// the descriptor returns what would be on a TCP connection's: EAGAIN if nothing has
// arrived, some of what has, and 0 bytes at the end. What is read there, other than with
// MSG_PEEK, Read of the Conn does not return again. After a reset, too, it is 0 bytes.
//
// Outside of such a call, and in one of Control, the descriptor is empty until the other
// side closes, closes its direction, gives up or dies. Then it polls as readable, also
// while some of what arrived before is not read. It is a Unix socket: socket options are
// those of such a one, and its peer credentials are those of this process.
//
// Nothing can be written to the descriptor. RawConn.Write returns errors.ErrUnsupported.
func (c *Conn) SyscallConn() (syscall.RawConn, error) {
	if !descriptors {
		return nil, c.opError("raw-control", errors.ErrUnsupported)
	}
	return &rawConn{c}, nil
}

type rawConn struct{ c *Conn }

// Control implements syscall.RawConn.
func (r *rawConn) Control(f func(fd uintptr)) error {
	err := r.c.end.control(f)
	runtime.KeepAlive(r)
	return r.c.opError("raw-control", err)
}

// Read implements syscall.RawConn. The descriptor shows what there is to read while f runs.
func (r *rawConn) Read(f func(fd uintptr) (done bool)) error {
	err := r.c.end.rawRead(f)
	raceAcquire(r.c.pair)
	runtime.KeepAlive(r)
	return r.c.opError("raw-read", err)
}

// Write implements syscall.RawConn. It does not call f.
func (r *rawConn) Write(func(fd uintptr) (done bool)) error {
	return r.c.opError("raw-write", errors.ErrUnsupported)
}
