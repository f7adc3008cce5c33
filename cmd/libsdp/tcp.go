//go:build libsdp && cgo && linux

package main

import (
	"cmp"
	"net"

	"golang.org/x/sys/unix"
)

// tcpConn is a connection by TCP, with the methods that it has by SDP.
type tcpConn struct{ *net.TCPConn }

// raw calls f with the descriptor. While f returns false it waits until that is readable, or, if write is set, writable.
func (c *tcpConn) raw(write bool, f func(fd int) bool) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	do := raw.Read
	if write {
		do = raw.Write
	}
	return do(func(fd uintptr) bool { return f(int(fd)) })
}

// TryRead implements conn.
func (c *tcpConn) TryRead(p []byte) (n int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	rawErr := c.raw(false, func(fd int) bool {
		n, _, err = unix.Recvfrom(fd, p, unix.MSG_DONTWAIT)
		return true
	})
	return max(n, 0), cmp.Or(rawErr, err)
}

// TryWrite implements conn.
func (c *tcpConn) TryWrite(p []byte) (n int, err error) {
	rawErr := c.raw(true, func(fd int) bool {
		n, err = unix.SendmsgN(fd, p, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		return true
	})
	return max(n, 0), cmp.Or(rawErr, err)
}

// WaitRead implements conn.
func (c *tcpConn) WaitRead() error {
	return c.raw(false, func(fd int) bool { return polls(fd, unix.POLLIN|unix.POLLRDHUP) })
}

// WaitWrite implements conn.
func (c *tcpConn) WaitWrite() error {
	return c.raw(true, func(fd int) bool { return polls(fd, unix.POLLOUT) })
}

// polls reports whether a descriptor has one of the events, or an error, now.
func polls(fd int, events int16) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: events}}
	n, err := unix.Poll(p, 0)
	return n != 0 && err != unix.EINTR
}

// WriteBuffers implements conn.
func (c *tcpConn) WriteBuffers(v *net.Buffers) (int64, error) { return v.WriteTo(c.TCPConn) }
