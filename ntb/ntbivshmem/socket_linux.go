//go:build linux && (amd64 || arm64)

package ntbivshmem

import (
	"context"
	"errors"
	"sync"

	"github.com/ntbnet/ntbnet/internal/ivshmem"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbfixed"
)

// AttachSocket returns the end of a process of the host, at the server that listens at a path. It
// connects when a session is opened. When the server has gone, a session that is up stays up, and
// Open connects again: it fails if there is no server.
func AttachSocket(path string, place Place) (ntb.Attachment, error) {
	if err := place.check(); err != nil {
		return nil, err
	}
	return &socketEnd{path: path, place: place, opening: make(chan struct{}, 1), closed: make(chan struct{})}, nil
}

// socketEnd implements ntb.Attachment.
type socketEnd struct {
	path    string        // immutable
	place   Place         // immutable
	opening chan struct{} // capacity 1: Open or Close is under way
	closed  chan struct{} // closed by Close
	once    sync.Once     // for Close

	// Guarded by opening. Nil while there is no server.
	client *ivshmem.Client
	inner  ntb.Attachment
}

// Open implements ntb.Attachment.
func (s *socketEnd) Open(ctx context.Context) (ntb.Device, error) {
	select {
	case s.opening <- struct{}{}:
		defer func() { <-s.opening }()
	case <-s.closed:
		return nil, ntb.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case <-s.closed:
		return nil, ntb.ErrClosed
	default:
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-s.closed:
			cancel(ntb.ErrClosed)
		case <-ctx.Done():
		}
	}()
	for {
		d, err := s.openAtServer(ctx)
		if !errors.Is(err, ivshmem.ErrServerGone) || ctx.Err() != nil {
			return d, err
		}
	}
}

// openAtServer opens a session at the server that is there. The error is ErrServerGone if that one
// goes meanwhile, or had gone before without notice yet. The caller holds opening.
func (s *socketEnd) openAtServer(ctx context.Context) (ntb.Device, error) {
	if err := s.connect(ctx); err != nil {
		return nil, errors.Join(err, context.Cause(ctx))
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func(client *ivshmem.Client) {
		select {
		case <-client.Gone():
			cancel(ivshmem.ErrServerGone)
		case <-ctx.Done():
		}
	}(s.client)
	d, err := s.inner.Open(ctx)
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		err = errors.Join(cause, err)
	}
	return d, err
}

// connect connects to the server unless it is connected. The caller holds opening.
func (s *socketEnd) connect(ctx context.Context) error {
	if s.client != nil {
		select {
		case <-s.client.Gone():
			if err := s.disconnect(); err != nil {
				return err
			}
		default:
			return nil
		}
	}
	client, err := ivshmem.Dial(ctx, s.path)
	if err != nil {
		return err
	}
	file, size := client.Memory()
	own, peer := s.place.memories(int(file.Fd()), size)
	inner, err := ntbfixed.Attach(ntbfixed.Config{
		Own: own, Peer: peer, Kind: ntb.Cacheable, Backend: "ivshmem", Stranger: true,
		ID:        uint32(client.ID()),
		Interrupt: func(id uint32) { client.Interrupt(int64(id)) },
		Wait:      client.Wait,
		Gone:      func(id uint32) bool { return client.Left(int64(id)) },
		Stop:      func() { client.Close() },
	})
	if err != nil {
		return errors.Join(err, client.Close())
	}
	s.client, s.inner = client, inner
	return nil
}

// disconnect ends what connect began. The caller holds opening.
func (s *socketEnd) disconnect() error {
	if s.client == nil {
		return nil
	}
	err := s.inner.Close() // which closes the client
	s.client, s.inner = nil, nil
	return err
}

// Close implements ntb.Attachment.
func (s *socketEnd) Close() (err error) {
	s.once.Do(func() {
		close(s.closed)
		s.opening <- struct{}{}
		defer func() { <-s.opening }()
		err = s.disconnect()
	})
	return err
}
