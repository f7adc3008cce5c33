package sdp

import (
	"errors"
	"os"

	"github.com/ntbnet/ntbnet/bounce"
	"github.com/ntbnet/ntbnet/internal/lock"
	"golang.org/x/sys/unix"
)

// descriptors reports whether connections can have a descriptor.
const descriptors = true

// descriptor is what SyscallConn shows of a connection: a pair of Unix sockets, made when
// first needed. What is written to feed can be read from show.
type descriptor struct {
	mu    lock.Mutex[lock.Raw]
	state descriptorState // guarded by mu
	show  int             // the end that programs get; guarded by mu
	feed  int             // ours; guarded by mu
	calls int             // number of calls that use them; guarded by mu
}

type descriptorState uint8

const (
	notMade descriptorState = iota
	isOpen
	isClosing // the connection is closed, and calls still use the sockets
	isClosed
)

// socketPair makes the two sockets. A write to show fails with EPIPE.
func socketPair() (show, feed int, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, -1, os.NewSyscallError("socketpair", err)
	}
	if err := unix.Shutdown(pair[0], unix.SHUT_WR); err != nil {
		unix.Close(pair[0])
		unix.Close(pair[1])
		return -1, -1, os.NewSyscallError("shutdown", err)
	}
	return pair[0], pair[1], nil
}

// take returns the sockets for a call that ends with give, and makes them if necessary.
// The first call also has the connection end them when it ends.
func (e *endpoint) take() (show, feed int, err error) {
	d := &e.raw
	d.mu.Lock()
	first := d.state == notMade
	switch {
	case d.state >= isClosing || e.pair.Closed():
		err = bounce.ErrClosed
	case first:
		if d.show, d.feed, err = socketPair(); err == nil {
			d.state = isOpen
		}
	}
	if err != nil {
		d.mu.Unlock()
		return -1, -1, err
	}
	d.calls++
	show, feed = d.show, d.feed
	d.mu.Unlock()
	if first {
		e.pair.OnEnd(d.end)
	}
	return show, feed, nil
}

func (d *descriptor) give() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls--
	d.closeUnused()
}

// closeUnused closes the sockets of a closed connection when no call uses them. The caller
// holds mu.
func (d *descriptor) closeUnused() {
	if d.state == isClosing && d.calls == 0 {
		unix.Close(d.show)
		unix.Close(d.feed)
		d.state = isClosed
	}
}

// close is called by Close of the connection.
func (d *descriptor) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.state == notMade {
		d.state = isClosed
		return
	}
	d.state = isClosing
	d.closeUnused()
}

// end makes the descriptor poll as readable, for good. It does not wait.
func (d *descriptor) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.state == isOpen {
		unix.Shutdown(d.feed, unix.SHUT_WR)
	}
}

func (e *endpoint) control(f func(fd uintptr)) error {
	show, _, err := e.take()
	if err != nil {
		return err
	}
	defer e.raw.give()
	f(uintptr(show))
	return nil
}

// rawRead calls f while the descriptor contains what there is to read.
func (e *endpoint) rawRead(f func(fd uintptr) (done bool)) error {
	show, feed, err := e.take()
	if err != nil {
		return err
	}
	defer e.raw.give()
	return e.pair.Look(func(next []byte, ended bool) (taken int, done bool, err error) {
		if ended {
			e.raw.end()
		}
		if len(next) == 0 {
			return 0, f(uintptr(show)), nil
		}
		taken, done, err = lend(show, feed, next, f)
		if errors.Is(err, unix.EPIPE) { // it shows the end already, which comes after this
			other, feed, err := socketPair()
			if err != nil {
				return 0, false, err
			}
			defer unix.Close(other)
			defer unix.Close(feed)
			return lend(other, feed, next, f)
		}
		return taken, done, err
	})
}

// maxLent is the most of what there is to read that the descriptor contains at a
// time.
const maxLent = 4 << 10

// lend calls f while the first bytes of b can be read from show, and returns how many f has
// read.
func lend(show, feed int, b []byte, f func(fd uintptr) (done bool)) (taken int, done bool, err error) {
	n, err := unix.SendmsgN(feed, b[:min(len(b), maxLent)], nil, nil, unix.MSG_NOSIGNAL)
	if err != nil {
		return 0, false, os.NewSyscallError("sendmsg", err)
	}
	left := 0
	defer func() { taken = n - left }()
	defer func() { // even if f panics
		var rest [maxLent]byte
		for {
			k, _, err := unix.Recvfrom(show, rest[:], unix.MSG_DONTWAIT)
			if k <= 0 || err != nil {
				return
			}
			left += k
		}
	}()
	return 0, f(uintptr(show)), nil
}
