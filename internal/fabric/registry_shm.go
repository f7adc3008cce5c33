package fabric

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/ntbnet/ntbnet/internal/greeting"
	"github.com/ntbnet/ntbnet/internal/hostdir"
	"github.com/ntbnet/ntbnet/internal/shm/unixsock"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbshm"
)

// shmRegistry is a process of a fabric whose hosts are all on this machine. Each
// host has a directory of its own, so that its processes and ports are separate
// from those of the others.
type shmRegistry struct {
	*hostdir.Dir            // of this host; immutable
	spec         *spec.Spec // immutable
	number       int        // immutable
	ln           *unixsock.Listener
}

// openShmRegistry opens the registry again if the directory is removed meanwhile, as an empty one
// may be.
func openShmRegistry(spec *spec.Spec) (s registry, err error) {
	if err := ntbshm.Check(); err != nil {
		return nil, fmt.Errorf("fabric: %w", err)
	}
	for range openTries {
		s, err = tryShmRegistry(spec)
		if !errors.Is(err, syscall.ESTALE) && !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return s, err
}

const openTries = 10

func tryShmRegistry(spec *spec.Spec) (registry, error) {
	dir, err := hostdir.Open(spec.PlaceOf(spec.Node), true)
	if err != nil {
		return nil, err
	}
	s := &shmRegistry{Dir: dir, spec: spec}
	claim := dir.ClaimProcess
	if spec.IsOwner() {
		claim = dir.ClaimOwner
	}
	if s.number, err = claim(); err == nil {
		s.ln, err = dir.Listen(s.number)
	}
	if err != nil {
		dir.Close()
		return nil, err
	}
	return s, nil
}

func (s *shmRegistry) process() int                   { return s.number }
func (s *shmRegistry) present(node int) (bool, error) { return s.spec.Runs(node) }
func (s *shmRegistry) stop()                          { s.ln.Close() }
func (s *shmRegistry) close()                         { s.ln.Close(); s.Close() }

func (s *shmRegistry) accept() (cable, error) {
	c, err := s.Accept(s.ln)
	if c == nil {
		return nil, err
	}
	return &shmCable{&greeting.Conn{Conn: c}}, err
}

func (s *shmRegistry) connect(ctx context.Context, node, process int) (cable, error) {
	if node == s.spec.Node {
		return shmCabled(greeting.ConnectIn(ctx, s.Dir, node, process))
	}
	return shmConnect(ctx, s.spec, node, process)
}

func (s *shmRegistry) connectTo(ctx context.Context, process int, users []int) (cable, error) {
	c, err := s.Connect(ctx, process, users)
	return shmCabled(&greeting.Conn{Conn: c}, err)
}

// shmConnect makes a cable to a process of a node, see Connect.
func shmConnect(ctx context.Context, s *spec.Spec, node, process int) (cable, error) {
	return shmCabled(greeting.Connect(ctx, s.PlaceOf(node), node, process))
}

// shmCable is an end of a Unix socket, of which ntbshm makes a bridge.
type shmCable struct{ *greeting.Conn }

func shmCabled(c *greeting.Conn, err error) (cable, error) {
	if err != nil {
		return nil, err
	}
	return &shmCable{c}, nil
}

func (c *shmCable) bridge(window, doorbells int) (ntb.Device, error) {
	return ntbshm.New(c.Conn.Conn, ntbshm.Options{Window: window, Doorbells: doorbells})
}
