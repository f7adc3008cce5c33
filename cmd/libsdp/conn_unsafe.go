//go:build libsdp && cgo && linux

package main

/*
#cgo CFLAGS: -O2 -Wall -Wextra -Wno-unused-parameter
#include "front.h"
*/
import "C"

import (
	"errors"
	"net"
	"syscall"
	"time"
	"unsafe"

	"github.com/ntbnet/ntbnet/bounce"
	_ "github.com/ntbnet/ntbnet/internal/csignals"
	"github.com/ntbnet/ntbnet/sdp"
)

// conn is a connection: an *sdp.Conn or a *tcpConn.
type conn interface {
	net.Conn
	CloseRead() error
	CloseWrite() error
	SetKeepAlive(bool) error
	SetLinger(sec int) error
	SetNoDelay(bool) error
	SetReadBuffer(bytes int) error
	SetWriteBuffer(bytes int) error
	TryRead(p []byte) (int, error)
	TryWrite(p []byte) (int, error)
	WaitRead() error
	WaitWrite() error
	WriteBuffers(v *net.Buffers) (int64, error)
}

var errNetwork = errors.New("the networks are sdp, tcp, tcp4 and tcp6")

// networkOf returns a network's name, if it is one whose connections are of type conn.
func networkOf(name *C.char) (string, error) {
	switch s := C.GoString(name); s {
	case sdp.Network, "tcp", "tcp4", "tcp6":
		return s, nil
	default:
		return "", &explained{syscall.EINVAL, "network " + s + ": " + errNetwork.Error()}
	}
}

//export sdpDial
func sdpDial(network, address *C.char, timeout C.longlong) C.int {
	name, err := networkOf(network)
	if err != nil {
		return failed(err)
	}
	d := sdp.Dialer{}
	if timeout >= 0 {
		d.Deadline = time.Now().Add(time.Duration(timeout))
	}
	c, err := d.Dial(name, C.GoString(address))
	if err != nil {
		return failed(err)
	}
	return opened(c)
}

// opened returns a handle for a connection, or closes it.
func opened(c net.Conn) C.int {
	s := new(socket)
	switch c := c.(type) {
	case *sdp.Conn:
		s.c, s.sdp = c, c
	case *net.TCPConn:
		s.c = &tcpConn{c}
	}
	if !open(s) {
		c.Close()
		return -C.EMFILE
	}
	return C.int(s.handle)
}

// connOf returns the connection with a handle, or nil.
func connOf(h C.int) *socket {
	s := find(int32(h))
	if s == nil || s.c == nil {
		return nil
	}
	return s
}

// moved returns what a call returns that has moved n bytes before err. Then the next call has the error.
func moved(n int, err error) C.ssize_t {
	if n > 0 || err == nil {
		return C.ssize_t(n)
	}
	return C.ssize_t(failed(err))
}

func bytesOf(p unsafe.Pointer, n C.size_t) []byte { return unsafe.Slice((*byte)(p), n) }

//export sdpRead
func sdpRead(h C.int, p unsafe.Pointer, n C.size_t) C.ssize_t {
	s := connOf(h)
	if s == nil {
		return -C.EBADF
	}
	return moved(s.read(bytesOf(p, n)))
}

func (s *socket) read(p []byte) (int, error) {
	if s.nonblock.Load() {
		return s.c.TryRead(p)
	}
	return s.c.Read(p)
}

//export sdpWrite
func sdpWrite(h C.int, p unsafe.Pointer, n C.size_t) C.ssize_t {
	s := connOf(h)
	if s == nil {
		return -C.EBADF
	}
	return moved(s.write(bytesOf(p, n)))
}

func (s *socket) write(p []byte) (int, error) {
	if s.nonblock.Load() {
		return s.c.TryWrite(p)
	}
	return s.c.Write(p)
}

// buffersOf returns the memory of an iovec that is not empty.
func buffersOf(iov *C.struct_iovec, n C.int) (all net.Buffers) {
	for _, v := range unsafe.Slice(iov, n) {
		if v.iov_len > 0 {
			all = append(all, bytesOf(v.iov_base, v.iov_len))
		}
	}
	return all
}

//export sdpReadv
func sdpReadv(h C.int, iov *C.struct_iovec, n C.int) C.ssize_t {
	s := connOf(h)
	if s == nil {
		return -C.EBADF
	}
	sum, read := 0, s.read
	for _, b := range buffersOf(iov, n) {
		k, err := read(b)
		sum += k
		if err != nil || k < len(b) {
			return moved(sum, err)
		}
		read = s.c.TryRead // there is something to return
	}
	return C.ssize_t(sum)
}

//export sdpWritev
func sdpWritev(h C.int, iov *C.struct_iovec, n C.int) C.ssize_t {
	s := connOf(h)
	if s == nil {
		return -C.EBADF
	}
	all := buffersOf(iov, n)
	if !s.nonblock.Load() {
		sum, err := s.c.WriteBuffers(&all)
		return moved(int(sum), err)
	}
	sum := 0
	for _, b := range all {
		k, err := s.c.TryWrite(b)
		sum += k
		if err != nil {
			return moved(sum, err)
		}
	}
	return C.ssize_t(sum)
}

//export sdpShutdown
func sdpShutdown(h, which C.int) C.int {
	s := connOf(h)
	if s == nil {
		return -C.EBADF
	}
	var err error
	if which&C.SDP_READ != 0 {
		err = s.c.CloseRead()
	}
	if which&C.SDP_WRITE != 0 && err == nil {
		err = s.c.CloseWrite()
	}
	return failed(err)
}

//export sdpPeek
func sdpPeek(h C.int, p *unsafe.Pointer) C.ssize_t {
	return lend(h, p, func(c *sdp.Conn) ([]byte, error) { return c.Peek() }, (*sdp.Conn).Discard, readLease)
}

//export sdpReserve
func sdpReserve(h C.int, n C.size_t, p *unsafe.Pointer) C.ssize_t {
	return lend(h, p, func(c *sdp.Conn) ([]byte, error) { return c.Reserve(int(n)) }, (*sdp.Conn).Commit, writeLease)
}

// lend gives C the memory that begin returns, until finish. If the socket was closed meanwhile, end takes it back at once.
func lend(h C.int, p *unsafe.Pointer, begin func(*sdp.Conn) ([]byte, error), end func(*sdp.Conn, int), which int) C.ssize_t {
	s := connOf(h)
	if s == nil {
		return -C.EBADF
	}
	if s.sdp == nil {
		return C.ssize_t(failed(errByTCP))
	}
	b, err := begin(s.sdp)
	if err != nil {
		return C.ssize_t(failed(err))
	}
	if !s.lent(which, b) {
		end(s.sdp, 0)
		return -C.EBADF
	}
	*p = unsafe.Pointer(unsafe.SliceData(b))
	return C.ssize_t(len(b))
}

//export sdpDiscard
func sdpDiscard(h C.int, n C.size_t) C.int { return giveBack(h, n, (*sdp.Conn).Discard, readLease) }

//export sdpCommit
func sdpCommit(h C.int, n C.size_t) C.int { return giveBack(h, n, (*sdp.Conn).Commit, writeLease) }

func giveBack(h C.int, n C.size_t, end func(*sdp.Conn, int), which int) C.int {
	s := connOf(h)
	if s == nil {
		return -C.EBADF
	}
	if !s.takeBack(which, uint64(n)) {
		return -C.EINVAL
	}
	end(s.sdp, int(n))
	return 0
}

func init() { bounce.OnThreads() }
