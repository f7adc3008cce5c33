package unixsock

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Rights are those of a listener's file.
type Rights struct {
	Mode     os.FileMode // 0 for what the process's umask leaves
	UID, GID int         // -1 for the process's own
}

// ListenAs listens on a path, or on an abstract name with "@" before it. It replaces the file of a listener that no
// longer exists by one of these rights. If they have a mode, only root may connect before the file has them. An
// abstract name has none.
func ListenAs(ctx context.Context, path string, r Rights) (*Listener, error) {
	if err := CheckPath(path); err != nil {
		return nil, err
	}
	if IsAbstract(path) {
		return Bind(ctx, path)
	}
	return replaceStale(ctx, path, func() (*Listener, error) { return bindAs(ctx, path, r) })
}

func bindAs(ctx context.Context, path string, r Rights) (*Listener, error) {
	lc := net.ListenConfig{Control: beforehand}
	if r.Mode != 0 {
		lc.Control = func(network, address string, raw syscall.RawConn) error {
			_ = raw.Control(func(fd uintptr) { _ = closeToAll(int(fd)) })
			return beforehand(network, address, raw)
		}
	}
	l, err := bind(ctx, lc, path)
	if err != nil {
		return nil, err
	}
	if err := r.Set(path); err != nil {
		os.Remove(path)
		l.sock.Close()
		return nil, err
	}
	return l, nil
}

// Set gives a file these rights.
func (r Rights) Set(path string) error {
	if r.UID >= 0 || r.GID >= 0 {
		if err := os.Lchown(path, r.UID, r.GID); err != nil {
			return err
		}
	}
	if r.Mode == 0 {
		return nil
	}
	return os.Chmod(path, r.Mode)
}

// Bind listens on a path where there is no file, or on an abstract name. The file stays when the listener
// is closed.
func Bind(ctx context.Context, path string) (*Listener, error) {
	return bind(ctx, net.ListenConfig{Control: beforehand}, path)
}

func bind(ctx context.Context, lc net.ListenConfig, path string) (*Listener, error) {
	ln, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	l := &Listener{sock: ln.(*net.UnixListener)}
	l.sock.SetUnlinkOnClose(false)
	err = onDescriptor(l.sock, func(fd int) error { l.open = mayPass(fd); return nil })
	if err != nil {
		l.sock.Close()
		return nil, err
	}
	return l, nil
}

// Share owns a listener whose socket another process has made, and listens on too. It returns a *Listener if it is a Unix
// socket, and ln otherwise. Close leaves the file and the socket as they are.
func Share(ln net.Listener) (net.Listener, error) {
	sock, ok := ln.(*net.UnixListener)
	if !ok {
		return ln, nil
	}
	sock.SetUnlinkOnClose(false)
	l := &Listener{sock: sock, open: sendsFiles, held: true}
	err := onDescriptor(sock, func(fd int) error { refuseFiles(fd); return nil })
	if err != nil {
		sock.Close()
		return nil, err
	}
	if name := sock.Addr().String(); !IsAbstract(name) {
		l.file, _ = os.Lstat(name) // nil if somebody has removed it
	}
	return l, nil
}

// replaceStale calls listen, which makes a socket at path. If an old one is there without a
// listener, that is removed first.
func replaceStale(ctx context.Context, path string, listen func() (*Listener, error)) (*Listener, error) {
	// Between the check of an old socket and its removal, another process may put its own
	// there. That appears old until it listens. All that call ListenAs in this directory take the lock,
	// one at a time.
	unlock := lockDirectory(filepath.Dir(path))
	defer unlock()
	ln, err := listen()
	if errors.Is(err, syscall.EADDRINUSE) {
		if err := removeStale(ctx, path); err != nil {
			return nil, err
		}
		ln, err = listen()
	}
	if err != nil {
		return nil, err
	}
	return ln.ownFile(path)
}

// IsAbstract reports whether a path is an abstract name, which is no file.
func IsAbstract(path string) bool { return strings.HasPrefix(path, "@") }

// removeStale removes path if it is a socket without a listener. If it has one, it
// returns EADDRINUSE.
func removeStale(ctx context.Context, path string) error {
	fi, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if fi.Mode().Type() != os.ModeSocket {
		return errors.New("the file exists and is not a socket; remove it or choose another path")
	}
	c, err := Dial(ctx, path)
	switch {
	case err == nil:
		c.Close()
		return syscall.EADDRINUSE
	case errors.Is(err, syscall.ECONNREFUSED):
		return os.Remove(path)
	case errors.Is(err, os.ErrNotExist):
		return nil
	case errors.Is(err, os.ErrPermission):
		return err
	}
	// The backlog may be full, or the socket of another type. It is not ours to
	// remove.
	return syscall.EADDRINUSE
}

// Listener accepts connections, whose Conns the caller owns. What is in its queue when it is closed may
// have files of peers, as a Conn has.
type Listener struct {
	calls
	sock *net.UnixListener
	open bool        // peers may have sent files; immutable
	held bool        // another process listens on it too; immutable
	path string      // absolute, "" if the file stays; immutable
	file os.FileInfo // nil if that is not known; immutable
}

// ownFile has Close remove the file, unless another process has put its own there.
func (l *Listener) ownFile(path string) (_ *Listener, err error) {
	if l.path, err = filepath.Abs(path); err == nil {
		l.file, err = os.Lstat(l.path)
	}
	if err != nil {
		l.sock.Close() // nobody has connected
		return nil, err
	}
	return l, nil
}

// Accept implements net.Listener. It returns a *Conn.
func (l *Listener) Accept() (net.Conn, error) {
	c, err := l.AcceptConn()
	if err != nil {
		return nil, err
	}
	return c, nil
}

// AcceptConn waits for the next connection.
func (l *Listener) AcceptConn() (c *Conn, err error) {
	err = l.do(func() error {
		sock, err := l.sock.AcceptUnix()
		if err == nil {
			c = newConn(sock)
		}
		return err
	})
	return c, err
}

// Control calls f with the descriptor, which f must not close.
func (l *Listener) Control(f func(fd int) error) error {
	return l.do(func() error { return onDescriptor(l.sock, f) })
}

// closeSoon is how long Close of a Listener waits at most for what peers may have sent.
const closeSoon = 100 * time.Millisecond

// Close removes the file before it stops listening, so that no process finds a stale one in between. It
// does not wait for long for files that peers have sent.
func (l *Listener) Close() error {
	if l.closed.Swap(true) {
		return net.ErrClosed
	}
	if now, err := os.Lstat(l.path); err == nil && l.file != nil && os.SameFile(now, l.file) {
		os.Remove(l.path)
	}
	if !l.open {
		return l.sock.Close()
	}
	if !l.held {
		_ = onDescriptor(l.sock, stopListening)
	}
	_ = l.sock.SetDeadline(time.Unix(1, 0))
	closed := make(chan struct{})
	files.add(-1, func() { l.wait(); l.sock.Close(); close(closed) })
	select {
	case <-closed: // and so an abstract name is free
	case <-time.After(closeSoon):
	}
	return nil
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return l.sock.Addr() }

// File returns the file of a listener that ListenAs or Share has made, or nil if it has none.
func File(ln net.Listener) os.FileInfo {
	if l, ok := ln.(*Listener); ok {
		return l.file
	}
	return nil
}
