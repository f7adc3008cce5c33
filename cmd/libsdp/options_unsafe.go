//go:build libsdp && cgo && linux

package main

/*
#include "front.h"
*/
import "C"

import (
	"net"
	"sync"
	"time"
	"unsafe"
)

//export sdpDeadline
func sdpDeadline(h, which C.int, after C.longlong) C.int {
	s := find(int32(h))
	if s == nil {
		return -C.EBADF
	}
	var t time.Time
	if after >= 0 {
		t = time.Now().Add(time.Duration(after))
	}
	switch {
	case s.ln != nil:
		return failed(s.ln.SetDeadline(t))
	case which == C.SDP_READ:
		return failed(s.c.SetReadDeadline(t))
	case which == C.SDP_WRITE:
		return failed(s.c.SetWriteDeadline(t))
	}
	return failed(s.c.SetDeadline(t))
}

//export sdpName
func sdpName(h, which C.int, text unsafe.Pointer, size C.size_t) C.int {
	s := find(int32(h))
	var a net.Addr
	switch {
	case s == nil:
		return -C.EBADF
	case which == C.SDP_LOCAL && s.ln != nil:
		a = s.ln.Addr()
	case which == C.SDP_LOCAL:
		a = s.c.LocalAddr()
	case which == C.SDP_REMOTE && s.c != nil:
		a = s.c.RemoteAddr()
	default:
		return -C.EINVAL
	}
	b, name := bytesOf(text, size), a.String()
	if len(b) <= len(name) {
		return -C.ERANGE
	}
	b[copy(b, name)] = 0
	return C.int(len(name))
}

//export sdpPeer
func sdpPeer(h C.int, to *C.struct_sdp_peer) C.int {
	s := connOf(h)
	switch {
	case s == nil:
		return -C.EBADF
	case s.sdp == nil:
		return failed(errByTCP)
	}
	p, ok := s.sdp.Peer()
	if !ok {
		return -C.ENODATA
	}
	to.pid, to.uid, to.gid = C.int(p.PID), C.int(p.UID), C.int(p.GID)
	return 0
}

//export sdpSet
func sdpSet(h, option C.int, value C.longlong) C.int {
	s := find(int32(h))
	switch {
	case s == nil:
		return -C.EBADF
	case option == C.SDP_NONBLOCK:
		s.nonblock.Store(value != 0)
		return 0
	case s.c == nil || value != C.longlong(int(value)):
		return -C.EINVAL
	}
	n := int(value)
	switch option {
	case C.SDP_READ_BUFFER:
		return failed(s.c.SetReadBuffer(n))
	case C.SDP_WRITE_BUFFER:
		return failed(s.c.SetWriteBuffer(n))
	case C.SDP_LINGER:
		return failed(s.c.SetLinger(n))
	case C.SDP_NODELAY:
		return failed(s.c.SetNoDelay(n != 0))
	case C.SDP_KEEPALIVE:
		return failed(s.c.SetKeepAlive(n != 0))
	}
	return -C.EINVAL
}

//export sdpGet
func sdpGet(h, option C.int) C.longlong {
	s := find(int32(h))
	switch {
	case s == nil:
		return -C.EBADF
	case option == C.SDP_NONBLOCK && s.nonblock.Load(), option == C.SDP_BY_TCP && s.c != nil && s.sdp == nil:
		return 1
	case option == C.SDP_NONBLOCK, option == C.SDP_BY_TCP && s.c != nil:
		return 0
	}
	return -C.EINVAL
}

//export sdpClose
func sdpClose(h C.int) C.int {
	s := find(int32(h))
	if s == nil {
		return -C.EBADF
	}
	return failed(s.close())
}

// sdpExit is sdp_close of all that is open, at the exit of the program.
//
//export sdpExit
func sdpExit() {
	var all sync.WaitGroup
	for s := range everySocket() {
		all.Go(func() { _ = s.close() })
	}
	all.Wait()
}
