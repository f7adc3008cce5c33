package sdp

import (
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// tcpQueue signals when a connection waits in the kernel's queue of a TCP listener.
// The connection is left there until Accept wants it, since another process may have
// the same socket.
type tcpQueue struct {
	tcp    *net.TCPListener // immutable
	file   *os.File         // the same socket, on which offer waits; immutable
	offers chan struct{}    // a connection waits; the receiver calls take
	taken  chan struct{}    // sent to by take
	done   chan struct{}    // closed by close
	err    error            // why offer has returned; constant after offers is closed
	wg     sync.WaitGroup   // for offer
}

func newTCPQueue(tcp *net.TCPListener) (*tcpQueue, error) {
	file, err := tcp.File()
	if err != nil {
		return nil, err
	}
	raw, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return nil, err
	}
	q := &tcpQueue{tcp: tcp, file: file, offers: make(chan struct{}), taken: make(chan struct{}), done: make(chan struct{})}
	q.wg.Go(func() { q.offer(raw) })
	return q, nil
}

// offer offers the listener's connections, one after the other.
func (q *tcpQueue) offer(raw syscall.RawConn) {
	for {
		err := raw.Read(func(fd uintptr) bool { return readable(int(fd)) })
		if err != nil {
			select {
			case <-q.done:
			default:
				q.err = err
				close(q.offers)
			}
			return
		}
		select {
		case q.offers <- struct{}{}:
		case <-q.done:
			return
		}
		select {
		case <-q.taken:
		case <-q.done:
			return
		}
	}
}

func readable(fd int) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}

// takeWithin is how long take waits for a connection that another process has taken
// meanwhile.
const takeWithin = time.Millisecond

// take accepts the connection that was offered. It returns nil without an error if that
// is gone, or the queue is closed.
func (q *tcpQueue) take() (net.Conn, error) {
	select {
	case <-q.done:
		return nil, nil
	default:
	}
	if q.err != nil {
		return nil, q.err
	}
	defer func() {
		select {
		case q.taken <- struct{}{}:
		case <-q.done:
		}
	}()
	if err := q.tcp.SetDeadline(time.Now().Add(takeWithin)); err != nil {
		return nil, err
	}
	c, err := q.tcp.Accept()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, nil
	}
	return c, err
}

func (q *tcpQueue) close() {
	close(q.done)
	q.file.Close()
	q.wg.Wait()
}

// ofIPv6 reports whether a socket is one of IPv6.
func ofIPv6(raw syscall.RawConn) (six bool) {
	_ = raw.Control(func(fd uintptr) {
		a, err := unix.Getsockname(int(fd))
		_, six = a.(*unix.SockaddrInet6)
		six = six && err == nil
	})
	return six
}
