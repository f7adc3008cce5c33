//go:build libsdp && cgo && linux

package main

/*
#cgo CFLAGS: -O2 -Wall -Wextra -Wno-unused-parameter
#include <stdlib.h>
#include "front.h"
*/
import "C"

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/ntbnet/ntbnet/bounce"
	_ "github.com/ntbnet/ntbnet/internal/csignals"
	"github.com/ntbnet/ntbnet/sdp"
)

func init() {
	bounce.OnThreads()
	// What the program has set itself is not in the environment that Go finds.
	if v := C.getenv(fabricName); v != nil {
		os.Setenv("SDP_FABRIC", C.GoString(v))
	}
}

var fabricName = C.CString("SDP_FABRIC")

// Directions, and events.
const (
	toRead  = C.SDP_READ
	toWrite = C.SDP_WRITE
)

// result returns what a call returns that has moved n bytes, or has the value n. The error of a call that has moved
// some is left to the next one.
func result(n int, err error) C.longlong {
	if n > 0 || err == nil {
		return C.longlong(n)
	}
	return C.longlong(failed(err))
}

// until returns the time that is after ns from now, or zero for SDP_NEVER.
func until(after C.longlong) (t time.Time) {
	if after >= 0 {
		t = time.Now().Add(time.Duration(after))
	}
	return t
}

// sdpOpen dials, or with listens listens.
//
//export sdpOpen
func sdpOpen(network, address *C.char, timeout C.longlong, listens, backlog C.int) C.longlong {
	name, at := C.GoString(network), C.GoString(address)
	if known := sdp.Networks(); !slices.Contains(known, name) {
		return result(0, &explained{syscall.EINVAL, fmt.Sprintf("network %q is none of %s", name, strings.Join(known, ", "))})
	}
	if listens == 0 {
		return result(connected((&sdp.Dialer{Deadline: until(timeout)}).Dial(name, at)))
	}
	ln, err := (&sdp.ListenConfig{Backlog: int(backlog)}).Listen(context.Background(), name, at)
	if err != nil {
		return result(0, err)
	}
	return result(opened(&socket{ln: ln.(listener), next: make(chan accepted, 1)}))
}

// connOf returns the connection with a handle, or nil.
func connOf(h C.int) *socket {
	if s := find(int32(h)); s != nil && s.c != nil {
		return s
	}
	return nil
}

func bytesOf(p unsafe.Pointer, n C.size_t) []byte { return unsafe.Slice((*byte)(p), n) }

//export sdpRead
func sdpRead(h C.int, p unsafe.Pointer, n C.size_t, try C.int) C.longlong {
	s := connOf(h)
	if s == nil {
		return -C.EBADF
	}
	if try != 0 || s.nonblock.Load() {
		return result(s.c.TryRead(bytesOf(p, n)))
	}
	return result(s.c.Read(bytesOf(p, n)))
}

//export sdpWrite
func sdpWrite(h C.int, p unsafe.Pointer, n C.size_t) C.longlong {
	s := connOf(h)
	if s == nil {
		return -C.EBADF
	}
	if s.nonblock.Load() {
		return result(s.c.TryWrite(bytesOf(p, n)))
	}
	return result(s.c.Write(bytesOf(p, n)))
}

//export sdpWritev
func sdpWritev(h C.int, iov *C.struct_iovec, count C.int) C.longlong {
	s := connOf(h)
	if s == nil {
		return -C.EBADF
	}
	var all net.Buffers
	for _, v := range unsafe.Slice(iov, count) {
		all = append(all, bytesOf(v.iov_base, v.iov_len))
	}
	n, err := s.c.WriteBuffers(&all)
	return result(int(n), err)
}

// sdpDo makes a call that is not of the data path. a and b are its numbers, and p is its memory.
//
//export sdpDo
func sdpDo(what, h C.int, a, b C.longlong, p unsafe.Pointer) C.longlong {
	s := find(int32(h))
	switch {
	case s == nil:
		return -C.EBADF
	case s.c == nil && what < C.SDPX_ANY:
		return -C.EBADF
	}
	return result(s.do(what, a, b, p))
}

func (s *socket) do(what C.int, a, b C.longlong, p unsafe.Pointer) (int, error) {
	switch what {
	case C.SDPX_SHUTDOWN:
		return 0, s.shutdown(int(a))
	case C.SDPX_PEER:
		return 0, s.peer((*C.struct_sdp_peer)(p))
	case C.SDPX_PEEK:
		return s.lend(&s.reading, (*unsafe.Pointer)(p), (*sdp.Conn).Peek, (*sdp.Conn).Discard)
	case C.SDPX_RESERVE:
		reserve := func(c *sdp.Conn) ([]byte, error) { return c.Reserve(int(a)) }
		return s.lend(&s.writing, (*unsafe.Pointer)(p), reserve, (*sdp.Conn).Commit)
	case C.SDPX_DISCARD:
		return 0, s.giveBack(&s.reading, int64(a), (*sdp.Conn).Discard)
	case C.SDPX_COMMIT:
		return 0, s.giveBack(&s.writing, int64(a), (*sdp.Conn).Commit)
	case C.SDPX_ACCEPT:
		if s.ln == nil {
			return 0, syscall.EINVAL
		}
		return connected(s.accept())
	case C.SDPX_DEADLINE:
		return 0, s.deadline(int(a), until(b))
	case C.SDPX_NAME:
		return s.name(a, bytesOf(p, C.size_t(b)))
	case C.SDPX_SET:
		return 0, s.set(a, b)
	case C.SDPX_GET:
		return s.get(a)
	case C.SDPX_FD:
		return s.fd()
	case C.SDPX_ARM:
		return 0, s.arm(int(a))
	case C.SDPX_READY:
		return s.take(), nil
	}
	return 0, s.close()
}

func (s *socket) shutdown(which int) (err error) {
	if which&toRead != 0 {
		err = s.c.CloseRead()
	}
	if which&toWrite != 0 && err == nil {
		err = s.c.CloseWrite()
	}
	return err
}

// lend stores at p where the bytes lie that begin returns, until end.
func (s *socket) lend(l *lease, p *unsafe.Pointer, begin func(*sdp.Conn) ([]byte, error), end func(*sdp.Conn, int)) (int, error) {
	if s.sdp == nil {
		return 0, errByTCP
	}
	b, err := begin(s.sdp)
	if err == nil {
		err = s.lent(l, b, end)
	}
	if err != nil {
		return 0, err
	}
	*p = unsafe.Pointer(&b[0])
	return len(b), nil
}

func (s *socket) deadline(which int, t time.Time) error {
	switch {
	case s.ln != nil:
		return s.ln.SetDeadline(t)
	case which == toRead:
		return s.c.SetReadDeadline(t)
	case which == toWrite:
		return s.c.SetWriteDeadline(t)
	}
	return s.c.SetDeadline(t)
}

// name stores an address in text, with a zero byte.
func (s *socket) name(which C.longlong, text []byte) (int, error) {
	var a net.Addr
	switch {
	case which == C.SDP_LOCAL && s.ln != nil:
		a = s.ln.Addr()
	case which == C.SDP_LOCAL:
		a = s.c.LocalAddr()
	case which == C.SDP_REMOTE && s.c != nil:
		a = s.c.RemoteAddr()
	default:
		return 0, syscall.EINVAL
	}
	name := a.String()
	if len(text) <= len(name) {
		return 0, syscall.ERANGE
	}
	text[copy(text, name)] = 0
	return len(name), nil
}

func (s *socket) peer(to *C.struct_sdp_peer) error {
	if s.sdp == nil {
		return errByTCP
	}
	p, ok := s.sdp.Peer()
	if !ok {
		return syscall.ENODATA
	}
	to.pid, to.uid, to.gid = C.int(p.PID), C.int(p.UID), C.int(p.GID)
	return nil
}

func (s *socket) set(option, value C.longlong) error {
	n := int(value)
	switch {
	case option == C.SDP_NONBLOCK:
		s.nonblock.Store(n != 0)
		return nil
	case s.c == nil:
		return syscall.EINVAL
	}
	switch option {
	case C.SDP_READ_BUFFER:
		return s.c.SetReadBuffer(n)
	case C.SDP_WRITE_BUFFER:
		return s.c.SetWriteBuffer(n)
	case C.SDP_LINGER:
		return s.c.SetLinger(n)
	case C.SDP_NODELAY:
		return s.c.SetNoDelay(n != 0)
	case C.SDP_KEEPALIVE:
		return s.c.SetKeepAlive(n != 0)
	}
	return syscall.EINVAL
}

func (s *socket) get(option C.longlong) (int, error) {
	is := s.nonblock.Load()
	if option == C.SDP_BY_TCP && s.c != nil {
		is = s.sdp == nil
	} else if option != C.SDP_NONBLOCK {
		return 0, syscall.EINVAL
	}
	if is {
		return 1, nil
	}
	return 0, nil
}

// sdpExit is sdp_close of all that is open, at the exit of the program.
//
//export sdpExit
func sdpExit() {
	var all sync.WaitGroup
	slots := *sockets.slots.Load()
	for i := range slots {
		if s := slots[i].Load(); s != nil {
			all.Go(func() { _ = s.close() })
		}
	}
	all.Wait()
}
