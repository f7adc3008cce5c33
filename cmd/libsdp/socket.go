//go:build libsdp && cgo && linux

package main

import (
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

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

// listener is an *sdp.Listener or an *sdp.TCPListener.
type listener interface {
	net.Listener
	SetDeadline(t time.Time) error
}

// socket is what a handle of C stands for.
type socket struct {
	// Constant once it is open.
	handle int32
	c      conn          // nil: it listens
	sdp    *sdp.Conn     // c, if that is by SDP
	ln     listener      // nil: a connection
	next   chan accepted // capacity 1: what the goroutine that waits for a connection has accepted

	nonblock atomic.Bool

	mu sync.Mutex
	// mu guards the following.
	closed   bool
	reading  lease
	writing  lease
	eventFD  int // 0: not made
	armed    int // events that goroutines wait for
	happened int // events that have come, and were not taken
}

// lease is memory that C has.
type lease struct {
	b   []byte         // nil: none
	pin runtime.Pinner // it may be of Go's heap, where the peer's is not in place
}

// accepted is what an Accept has returned.
type accepted struct {
	c   net.Conn
	err error
}

// opened returns a handle for a socket, or closes it.
func opened(s *socket) (int, error) {
	if !open(s) {
		_ = s.end()
		return 0, syscall.EMFILE
	}
	return int(s.handle), nil
}

// connected returns a handle for a connection.
func connected(c net.Conn, err error) (int, error) {
	if err != nil {
		return 0, err
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		return opened(&socket{c: &tcpConn{tcp}})
	}
	s := c.(*sdp.Conn)
	return opened(&socket{c: s, sdp: s})
}

// lent notes that C has b until giveBack. If the socket was closed meanwhile, end takes it back at once.
func (s *socket) lent(l *lease, b []byte, end func(*sdp.Conn, int)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		end(s.sdp, 0)
		return net.ErrClosed
	}
	l.b = b
	l.pin.Pin(&b[0])
	return nil
}

// giveBack ends a lease of n bytes or more.
func (s *socket) giveBack(l *lease, n int64, end func(*sdp.Conn, int)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.b == nil || n < 0 || n > int64(len(l.b)) {
		return syscall.EINVAL
	}
	l.b = nil
	l.pin.Unpin()
	end(s.sdp, int(n))
	return nil
}

// accept returns what waitAccept has accepted, or accepts.
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
func (s *socket) waitAccept() {
	if len(s.next) == 0 {
		c, err := s.ln.Accept()
		s.next <- accepted{c, err}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		s.drop()
	}
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

// close closes the socket and takes its handle away.
func (s *socket) close() error {
	s.mu.Lock()
	switch {
	case s.closed:
		s.mu.Unlock()
		return net.ErrClosed
	case s.reading.b != nil || s.writing.b != nil:
		s.mu.Unlock()
		return errLent
	}
	s.closed = true
	s.closeFD()
	s.mu.Unlock()
	shut(s)
	return s.end()
}

func (s *socket) end() error {
	if s.c != nil {
		return s.c.Close()
	}
	defer s.drop()
	return s.ln.Close()
}
