//go:build libsdp && cgo && linux

package main

import (
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/ntbnet/ntbnet/sdp"
)

// socket is what a handle of C stands for.
type socket struct {
	// Constant once it is open.
	handle int32
	c      conn      // nil: it listens
	sdp    *sdp.Conn // c, if that is by SDP
	ln     listener  // nil: a connection

	nonblock atomic.Bool
	next     chan accepted // capacity 1: what the goroutine that waits for a connection has accepted; constant

	mu sync.Mutex
	// mu guards the following.
	closed bool
	leases [2]lease
	ready  readiness
}

// Leases of a socket, of which each may be out once.
const (
	readLease = iota
	writeLease
)

// lease is memory that C has.
type lease struct {
	out bool
	n   int            // bytes
	pin runtime.Pinner // it may be of Go's heap, where the peer's is not in place
}

// lent notes that C has b from now on. It reports false if the socket is closed.
func (s *socket) lent(which int, b []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	l := &s.leases[which]
	l.out, l.n = true, len(b)
	l.pin.Pin(unsafe.SliceData(b))
	return true
}

// takeBack ends a lease of n bytes or more. It reports false if there is none.
func (s *socket) takeBack(which int, n uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &s.leases[which]
	if !l.out || n > uint64(l.n) {
		return false
	}
	l.out = false
	l.pin.Unpin()
	return true
}

// close closes the socket and takes its handle away.
func (s *socket) close() error {
	s.mu.Lock()
	if s.leases[readLease].out || s.leases[writeLease].out {
		s.mu.Unlock()
		return errLent
	}
	if s.closed {
		s.mu.Unlock()
		return net.ErrClosed
	}
	s.closed = true
	s.ready.close()
	s.mu.Unlock()
	shut(s)
	if s.c != nil {
		return s.c.Close()
	}
	err := s.ln.Close()
	s.drop()
	return err
}
