//go:build libsdp && cgo && linux

package main

/*
#include "front.h"
*/
import "C"

import (
	"context"
	"net"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/sdp"
)

// listener is an *sdp.Listener or an *sdp.TCPListener.
type listener interface {
	net.Listener
	SetDeadline(t time.Time) error
}

// accepted is what an Accept has returned.
type accepted struct {
	c   net.Conn
	err error
}

//export sdpListen
func sdpListen(network, address *C.char, backlog C.int) C.int {
	name, err := networkOf(network)
	if err != nil {
		return failed(err)
	}
	ln, err := (&sdp.ListenConfig{Backlog: int(backlog)}).Listen(context.Background(), name, C.GoString(address))
	if err != nil {
		return failed(err)
	}
	s := &socket{ln: ln.(listener), next: make(chan accepted, 1)}
	if !open(s) {
		ln.Close()
		return -C.EMFILE
	}
	return C.int(s.handle)
}

//export sdpAccept
func sdpAccept(h C.int) C.int {
	s := find(int32(h))
	switch {
	case s == nil:
		return -C.EBADF
	case s.ln == nil:
		return -C.EINVAL
	}
	c, err := s.accept()
	if err != nil {
		return failed(err)
	}
	return opened(c)
}

func (s *socket) accept() (net.Conn, error) {
	select {
	case a := <-s.next:
		return a.c, a.err
	default:
	}
	if s.nonblock.Load() {
		return nil, syscall.EAGAIN
	}
	return s.ln.Accept()
}

// waitAccept waits until accept would not wait. One goroutine calls it at a time.
func (s *socket) waitAccept() error {
	if len(s.next) == 0 {
		c, err := s.ln.Accept()
		s.next <- accepted{c, err}
	}
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		s.drop()
	}
	return nil
}

// drop closes a connection that nobody will accept.
func (s *socket) drop() {
	select {
	case a := <-s.next:
		if a.err == nil {
			a.c.Close()
		}
	default:
	}
}
