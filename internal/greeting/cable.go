package greeting

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/internal/hostdir"
	"github.com/ntbnet/ntbnet/internal/shm/unixsock"
)

// Cable joins two processes before they have a bridge.
type Cable interface {
	io.ReadWriteCloser
	SetDeadline(time.Time) error
	// Peer returns the user of the process at the other end.
	Peer() (hostdir.Peer, error)
	// TakeFiles lets the other end send files. It is called before this end's part of a greeting, unless
	// both then hang up.
	TakeFiles() error
}

// Conn is an end of a Unix socket.
type Conn struct{ *unixsock.Conn }

// Peer implements [Cable].
func (c *Conn) Peer() (hostdir.Peer, error) { return hostdir.PeerOf(c.Conn) }

// SendFile sends a frame of a greeting, and a file with it.
func (c *Conn) SendFile(frame []byte, f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	err = raw.Control(func(fd uintptr) { _, sent = c.WriteFiles(frame, int(fd)) })
	if err != nil {
		return err
	}
	return sent
}

// Connect makes a cable to a process of a node, 0 for the owner of its links, whose processes meet at place. It opens the
// directory each time, since that may have been removed and made again.
func Connect(ctx context.Context, place hostdir.Place, node, process int) (*Conn, error) {
	dir, err := hostdir.Open(place, false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errAbsent(node)
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	c, err := ConnectIn(ctx, dir, node, process)
	if err != nil {
		return nil, fmt.Errorf("node %d: %w", node, err)
	}
	return c, nil
}

// ConnectIn makes a cable to a process of the node that has dir, 0 for the owner of its
// links.
func ConnectIn(ctx context.Context, dir *hostdir.Dir, node, process int) (*Conn, error) {
	if process == 0 {
		owner, ok, err := dir.Owner()
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, errAbsent(node)
		}
		process = owner
	}
	c, err := dir.Connect(ctx, process, nil)
	if err != nil {
		return nil, err
	}
	return &Conn{c}, nil
}

func errAbsent(node int) error {
	return fmt.Errorf("fabric: node %d is not there: %w", node, syscall.EHOSTUNREACH)
}
