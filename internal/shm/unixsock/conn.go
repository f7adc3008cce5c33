package unixsock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// ErrFiles reports that the peer has sent files that the call does not take. The connection is of no more
// use.
var ErrFiles = errors.New("the peer sends files that are not wanted")

// oldKernel, unless empty, makes this package go without SO_PASSRIGHTS, as Linux before 6.16 has to. The
// linker sets it for tests.
var oldKernel string

// Conn is an end of a connected socket. Its methods return net.ErrClosed after Close, which also ends
// the calls under way.
type Conn struct {
	calls
	sock *net.UnixConn
	uid  int         // the peer's user, or -1 if that is not known
	open atomic.Bool // the peer may have sent files
}

// calls counts the calls of an object, so that none of them closes the descriptor: the last one that
// uses it would.
type calls struct {
	under  sync.RWMutex // held for reading by each
	closed atomic.Bool
}

// do calls f unless the object is closed.
func (c *calls) do(f func() error) error {
	c.under.RLock()
	defer c.under.RUnlock()
	if c.closed.Load() {
		return net.ErrClosed
	}
	err := f()
	if err != nil && c.closed.Load() {
		return net.ErrClosed
	}
	return err
}

// wait waits for the end of all calls. They end soon, since the object is closed and shut down.
func (c *calls) wait() {
	c.under.Lock()
	defer c.under.Unlock()
}

// Own returns a Conn that owns c, a *net.UnixConn or a Conn already. The peer may send files.
func Own(c net.Conn) (*Conn, error) {
	switch c := c.(type) {
	case *Conn:
		return c, nil
	case *net.UnixConn:
		own := newConn(c)
		own.open.Store(sendsFiles)
		return own, nil
	}
	return nil, fmt.Errorf("%T is no end of a Unix socket: %w", c, syscall.EINVAL)
}

func newConn(sock *net.UnixConn) *Conn {
	c := &Conn{sock: sock, uid: -1}
	if raw, err := sock.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			c.uid = peerUser(int(fd))
			c.open.Store(prepare(int(fd)))
		})
	}
	return c
}

// Dial connects to the socket at a path. Until TakeFiles the kernel refuses files that the peer sends, if it
// can.
func Dial(ctx context.Context, path string) (*Conn, error) {
	return dial(ctx, net.Dialer{Control: beforehand}, path)
}

// DialForFiles is Dial, to a peer that may send files at once.
func DialForFiles(ctx context.Context, path string) (*Conn, error) {
	return dial(ctx, net.Dialer{}, path)
}

func dial(ctx context.Context, d net.Dialer, path string) (*Conn, error) {
	c, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	return newConn(c.(*net.UnixConn)), nil
}

// beforehand prepares a socket before it is connected or listens.
func beforehand(_, _ string, raw syscall.RawConn) error {
	return raw.Control(func(fd uintptr) { refuseFiles(int(fd)) })
}

// onDescriptor calls f with the descriptor of a socket.
func onDescriptor(sock syscall.Conn, f func(fd int) error) error {
	raw, err := sock.SyscallConn()
	if err != nil {
		return err
	}
	if outer := raw.Control(func(fd uintptr) { err = f(int(fd)) }); outer != nil {
		return outer
	}
	return err
}

// Plain returns the socket itself if the kernel refuses files that the peer sends, so that nothing in it
// can take long to close, and c itself otherwise, or if it is no Conn. It replaces c.
func Plain(c net.Conn) net.Conn {
	if own, ok := c.(*Conn); ok && !own.open.Load() {
		return own.sock
	}
	return c
}

// IsPlain reports whether Plain has returned c.
func IsPlain(c net.Conn) bool {
	_, ok := c.(*net.UnixConn)
	return ok
}

// TakeFiles lets the peer send files from now on.
func (c *Conn) TakeFiles() error {
	return c.do(func() error {
		c.open.Store(sendsFiles) // before the kernel lets one in, see Close
		return onDescriptor(c.sock, acceptFiles)
	})
}

// Read implements io.Reader. It takes no files: the error is ErrFiles if there is one with what it would
// return.
func (c *Conn) Read(p []byte) (n int, err error) {
	n, _, err = c.ReadFiles(p, 0)
	return n, err
}

// ReadFiles is Read, and takes up to most files that come with the bytes. They belong to the caller, who
// closes them by Discard. The error is ErrFiles if there are more, or no descriptors are left for them.
func (c *Conn) ReadFiles(p []byte, most int) (n int, got []int, err error) {
	err = c.do(func() error {
		if !c.open.Load() {
			n, err = c.sock.Read(p)
			return err
		}
		if err := c.haveRoom(); err != nil {
			return err
		}
		n, got, err = c.receive(p, most)
		return err
	})
	return n, got, err
}

// Write implements io.Writer.
func (c *Conn) Write(p []byte) (int, error) { return c.WriteFiles(p) }

// WriteFiles writes, and sends descriptors of files with the first byte. They stay the caller's.
func (c *Conn) WriteFiles(p []byte, send ...int) (n int, err error) {
	err = c.do(func() error {
		if len(send) > 0 && len(p) > 0 {
			if n, _, err = c.sock.WriteMsgUnix(p, rights(send), nil); err != nil {
				return err
			}
		}
		if n == len(p) && n > 0 {
			return nil
		}
		m, err := c.sock.Write(p[n:])
		n += m
		return err
	})
	return n, err
}

// Control calls f with the descriptor, which f must neither read nor close.
func (c *Conn) Control(f func(fd int) error) error {
	return c.do(func() error { return onDescriptor(c.sock, f) })
}

// haveRoom returns an error if too much is to be closed for the peer's user. It waits a moment, since most
// closes are quick.
func (c *Conn) haveRoom() error {
	for range roomTries {
		if !files.full(c.uid) {
			return nil
		}
		if c.closed.Load() {
			return net.ErrClosed
		}
		time.Sleep(roomPause)
	}
	return fmt.Errorf("%w: those of user %d are not closed yet", ErrFiles, c.uid)
}

const (
	roomTries = 200
	roomPause = 5 * time.Millisecond
)

// UID returns the user of the process at the other end, or -1 if that is not known.
func (c *Conn) UID() int { return c.uid }

// Wait waits until there is something to read, the peer has closed, or the deadline of reads has passed. It
// reads nothing.
func (c *Conn) Wait() error {
	return c.do(func() error {
		raw, err := c.sock.SyscallConn()
		if err != nil {
			return err
		}
		err = raw.Read(func(fd uintptr) bool { return readable(int(fd)) })
		if err == nil && c.closed.Load() {
			return net.ErrClosed // Close has shut it down, and so it is readable
		}
		return err
	})
}

// Shutdown ends both directions, and all calls that wait. What the peer has sent stays.
func (c *Conn) Shutdown() {
	_ = c.do(func() error { c.shut(); return nil })
}

func (c *Conn) shut() {
	_ = c.sock.CloseRead()
	_ = c.sock.CloseWrite()
	_ = c.sock.SetDeadline(time.Unix(1, 0))
}

// CloseWrite ends the direction to the peer.
func (c *Conn) CloseWrite() error { return c.do(c.sock.CloseWrite) }

// Close ends the connection. It does not wait for files that the peer has sent.
func (c *Conn) Close() error {
	if c.closed.Swap(true) {
		return net.ErrClosed
	}
	c.shut()
	if !c.open.Load() || onDescriptor(c.sock, empty) == nil { // it stays so, since it is shut
		return c.sock.Close()
	}
	last := func() { c.wait(); c.sock.Close() }
	if !files.full(c.uid) || onDescriptor(c.sock, func(fd int) error { return files.stow(c.uid, fd) }) != nil {
		files.add(c.uid, last)
		return nil
	}
	defer files.hasStowed(c.uid)
	return c.sock.Close() // another descriptor has it open
}

// LocalAddr implements net.Conn.
func (c *Conn) LocalAddr() net.Addr { return c.sock.LocalAddr() }

// RemoteAddr implements net.Conn.
func (c *Conn) RemoteAddr() net.Addr { return c.sock.RemoteAddr() }

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error {
	return c.do(func() error { return c.sock.SetDeadline(t) })
}

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error {
	return c.do(func() error { return c.sock.SetReadDeadline(t) })
}

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	return c.do(func() error { return c.sock.SetWriteDeadline(t) })
}
