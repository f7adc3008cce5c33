package unixsock

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Listen listens on a path, or on an abstract name with "@" before it. It replaces the file of a
// listener that no longer exists.
func Listen(ctx context.Context, path string) (net.Listener, error) {
	if err := CheckPath(path); err != nil {
		return nil, err
	}
	listen := func() (net.Listener, error) { return new(net.ListenConfig).Listen(ctx, "unix", path) }
	if IsAbstract(path) {
		return listen()
	}
	return replaceStale(path, listen)
}

// replaceStale calls listen, which makes a socket at path. If an old one is there without a
// listener, that is removed first.
func replaceStale(path string, listen func() (net.Listener, error)) (net.Listener, error) {
	// Between the check of an old socket and its removal, another process may put its own
	// there. That appears old until it listens. The lock excludes the processes that use it,
	// which are those that call Listen.
	unlock := lockDirectory(filepath.Dir(path))
	defer unlock()
	ln, err := listen()
	if errors.Is(err, syscall.EADDRINUSE) {
		if err := removeStale(path); err != nil {
			return nil, err
		}
		ln, err = listen()
	}
	if err != nil {
		return nil, err
	}
	return ownFile(ln.(*net.UnixListener), path)
}

// IsAbstract reports whether a path is an abstract name, which is no file.
func IsAbstract(path string) bool { return strings.HasPrefix(path, "@") }

// removeStale removes path if it is a socket without a listener. If it has one, it
// returns EADDRINUSE.
func removeStale(path string) error {
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
	c, err := net.Dial("unix", path)
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

// listener removes its file when it is closed. By then another process may have
// put its own file there, which it leaves alone.
type listener struct {
	*net.UnixListener
	path string      // immutable, absolute
	file os.FileInfo // immutable
}

func ownFile(ln *net.UnixListener, path string) (net.Listener, error) {
	ln.SetUnlinkOnClose(false)
	abs, err := filepath.Abs(path)
	if err == nil {
		var file os.FileInfo
		if file, err = os.Lstat(abs); err == nil {
			return &listener{ln, abs, file}, nil
		}
	}
	ln.Close()
	return nil, err
}

// Close removes the file before it stops listening, so that no process finds a
// stale one in between.
func (l *listener) Close() error {
	if now, err := os.Lstat(l.path); err == nil && os.SameFile(now, l.file) {
		os.Remove(l.path)
	}
	return l.UnixListener.Close()
}

// File returns the file of a listener that Listen has made, or nil if it has none.
func File(ln net.Listener) os.FileInfo {
	if l, ok := ln.(*listener); ok {
		return l.file
	}
	return nil
}
