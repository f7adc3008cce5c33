package unixsock

import (
	"context"
	"net"
	"os"
	"syscall"
)

// Rights are those of a listener's file.
type Rights struct {
	Mode     os.FileMode // 0 for what the process's umask leaves
	UID, GID int         // -1 for the process's own
}

// ListenAs is Listen, with a file of these rights. If they have a mode, only root may connect before the file has
// them. An abstract name has none.
func ListenAs(ctx context.Context, path string, r Rights) (*Listener, error) {
	return listenAt(ctx, path, func() (*Listener, error) { return bindAs(ctx, path, r) })
}

func bindAs(ctx context.Context, path string, r Rights) (*Listener, error) {
	if IsAbstract(path) {
		return Bind(ctx, path)
	}
	lc := net.ListenConfig{Control: beforehand}
	if r.Mode != 0 {
		lc.Control = func(network, address string, raw syscall.RawConn) error {
			_ = control(raw, closeToAll)
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
