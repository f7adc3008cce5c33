//go:build !linux

package sdp

import (
	"errors"
	"net"
	"sync"
	"syscall"
)

// descriptors reports whether connections can have a descriptor.
const descriptors = false

type descriptor struct{}

func (*descriptor) close() {}

func (*endpoint) control(func(uintptr)) error      { return errors.ErrUnsupported }
func (*endpoint) rawRead(func(uintptr) bool) error { return errors.ErrUnsupported }

// tcpQueue takes connections from a TCP listener, one ahead of Accept.
type tcpQueue struct {
	tcp    *net.TCPListener // immutable
	offers chan struct{}    // next is there; the receiver calls take
	next   chan accepted    // of capacity 1
	done   chan struct{}    // closed by close
	wg     sync.WaitGroup   // for accept
}

type accepted struct {
	conn net.Conn
	err  error
}

func newTCPQueue(tcp *net.TCPListener) (*tcpQueue, error) {
	q := &tcpQueue{tcp: tcp, offers: make(chan struct{}), next: make(chan accepted, 1), done: make(chan struct{})}
	q.wg.Go(q.accept)
	return q, nil
}

func (q *tcpQueue) accept() {
	for {
		c, err := q.tcp.Accept()
		q.next <- accepted{c, err}
		select {
		case q.offers <- struct{}{}:
		case <-q.done:
			if c != nil {
				c.Close()
			}
			return
		}
	}
}

// take returns the connection that was offered.
func (q *tcpQueue) take() (net.Conn, error) {
	a := <-q.next
	return a.conn, a.err
}

// close is called after the listener was closed.
func (q *tcpQueue) close() {
	close(q.done)
	q.wg.Wait()
}

// ofIPv6 reports whether a socket is one of IPv6, as far as is known here.
func ofIPv6(syscall.RawConn) bool { return false }
