//go:build libsdp && cgo && linux

package main

/*
#include "front.h"
*/
import "C"

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// readiness is what a program's epoll learns of a socket. The socket's mutex guards it.
type readiness struct {
	made  bool
	fd    int   // an eventfd, which is readable while came is not 0; valid if made
	armed C.int // events that goroutines wait for
	came  C.int // events that have come, and were not taken
}

// descriptor returns the eventfd, and makes it if necessary.
func (r *readiness) descriptor() (int, error) {
	if !r.made {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		if err != nil {
			return -1, err
		}
		r.made, r.fd = true, fd
	}
	return r.fd, nil
}

// come notes that an event has come.
func (r *readiness) come(event C.int) {
	r.armed &^= event
	if r.came == 0 && r.made {
		one := [8]byte{}
		binary.NativeEndian.PutUint64(one[:], 1)
		_, _ = unix.Write(r.fd, one[:])
	}
	r.came |= event
}

// take returns the events that have come, and empties the descriptor.
func (r *readiness) take() C.int {
	came := r.came
	if came != 0 && r.made {
		_, _ = unix.Read(r.fd, make([]byte, 8))
	}
	r.came = 0
	return came
}

func (r *readiness) close() {
	if r.made {
		unix.Close(r.fd)
		r.made = false
	}
}

//export sdpFD
func sdpFD(h C.int) C.int {
	s := find(int32(h))
	if s == nil {
		return -C.EBADF
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return -C.EBADF
	}
	fd, err := s.ready.descriptor()
	if err != nil {
		return failed(err)
	}
	return C.int(fd)
}

//export sdpArm
func sdpArm(h, events C.int) C.int {
	s := find(int32(h))
	switch {
	case s == nil:
		return -C.EBADF
	case s.ln != nil && events&C.SDP_WRITE != 0:
		return -C.EINVAL
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return -C.EBADF
	}
	events &^= s.ready.armed | s.ready.came
	s.ready.armed |= events
	if events&C.SDP_READ != 0 {
		go s.watch(C.SDP_READ)
	}
	if events&C.SDP_WRITE != 0 {
		go s.watch(C.SDP_WRITE)
	}
	return 0
}

// watch waits for an event. An error is one too: the program's next call has it.
func (s *socket) watch(event C.int) {
	switch {
	case s.ln != nil:
		_ = s.waitAccept()
	case event == C.SDP_READ:
		_ = s.c.WaitRead()
	default:
		_ = s.c.WaitWrite()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready.come(event)
}

//export sdpReady
func sdpReady(h C.int) C.int {
	s := find(int32(h))
	if s == nil {
		return -C.EBADF
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ready.take()
}
