package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/ntbnet/ntbnet/sdp"
)

// listen opens the left side of a map. The error is one line that says what to do.
func listen(ctx context.Context, e Endpoint, cfg Config) (net.Listener, error) {
	var ln net.Listener
	var err error
	if e.Network != networkSDP && !cfg.Users.All() {
		return nil, fmt.Errorf("cannot listen on %v for some users alone: only an sdp:// listener knows whose process connects; use sdp://, or another sdp-proxy for this map", e)
	}
	switch e.Network {
	case networkSDP:
		lc := sdp.ListenConfig{Fabric: cfg.Fabric}
		if !cfg.Users.All() {
			lc.Allow = cfg.Users.allow
		}
		ln, err = lc.Listen(ctx, e.Network, e.Address)
	case networkUnix:
		ln, err = listenUnix(ctx, e.Address)
	default:
		// It uses plain TCP. With Multipath TCP a single path may end, and a reset
		// would not mean what relay takes it to mean.
		var lc net.ListenConfig
		lc.SetMultipathTCP(false)
		ln, err = lc.Listen(ctx, e.Network, e.Address)
	}
	if err != nil {
		return nil, explainListen(e, err)
	}
	return ln, nil
}

// explainListen adds to err what can be done about it.
func explainListen(e Endpoint, err error) error {
	var advice string
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		advice = "another program listens there; stop it or choose another address"
	case errors.Is(err, os.ErrPermission) && e.Network == networkTCP:
		advice = "ports below 1024 need privileges; choose a higher one"
	case errors.Is(err, os.ErrPermission):
		advice = "this user may not create it; choose another place or check the rights there"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		advice = "this machine has no such address"
	case e.Network == networkUnix && errors.Is(err, os.ErrNotExist):
		advice = "make the directory first"
	default:
		return fmt.Errorf("cannot listen on %v: %w", e, err)
	}
	return fmt.Errorf("cannot listen on %v: %w; %s", e, rootCause(err), advice)
}

// rootCause removes the layers of an error that only repeat the address.
func rootCause(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}

// listenUnix listens on a path. It replaces the file of a listener that no longer
// exists.
func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	listen := func() (net.Listener, error) { return new(net.ListenConfig).Listen(ctx, networkUnix, path) }
	if isAbstract(path) {
		return listen()
	}
	return replaceStale(path, listen)
}

// replaceStale calls listen, which makes a socket at path. If an old one is there without a
// listener, that is removed first.
func replaceStale(path string, listen func() (net.Listener, error)) (net.Listener, error) {
	// Between the check of an old socket and its removal, another process may put its own
	// there. That appears old until it listens. The lock excludes the processes that use it,
	// which are other proxies.
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
	return ownUnixFile(ln.(*net.UnixListener), path)
}

func isAbstract(path string) bool { return strings.HasPrefix(path, "@") }

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
	c, err := net.Dial(networkUnix, path)
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

// unixListener removes its file when it is closed. By then another process may have
// put its own file there, which it leaves alone.
type unixListener struct {
	*net.UnixListener
	path string      // immutable, absolute
	file os.FileInfo // immutable
}

func ownUnixFile(ln *net.UnixListener, path string) (net.Listener, error) {
	ln.SetUnlinkOnClose(false)
	abs, err := filepath.Abs(path)
	if err == nil {
		var file os.FileInfo
		if file, err = os.Lstat(abs); err == nil {
			return &unixListener{ln, abs, file}, nil
		}
	}
	ln.Close()
	return nil, err
}

// Close removes the file before it stops listening, so that no process finds a
// stale one in between.
func (l *unixListener) Close() error {
	if now, err := os.Lstat(l.path); err == nil && os.SameFile(now, l.file) {
		os.Remove(l.path)
	}
	return l.UnixListener.Close()
}
