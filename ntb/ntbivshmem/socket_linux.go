//go:build linux && (amd64 || arm64)

package ntbivshmem

import (
	"context"
	"errors"

	"github.com/ntbnet/ntbnet/internal/ivshmem"
	"github.com/ntbnet/ntbnet/internal/shm/memfd"
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
	return ntbfixed.Reattach(func(ctx context.Context) (ntbfixed.Attached, error) { return connect(ctx, path, place) }), nil
}

// connect attaches the end of a place to the server that is there now.
func connect(ctx context.Context, path string, place Place) (ntbfixed.Attached, error) {
	client, err := ivshmem.Dial(ctx, path)
	if err != nil {
		return ntbfixed.Attached{}, err
	}
	file, size := client.Memory()
	revocable := memfd.Check(int(file.Fd()), size) != nil
	config := ntbfixed.Config{
		Kind: ntb.Cacheable, Backend: "ivshmem", Untrusted: true,
		Revocable: revocable, Zeros: revocable,
		ID:        uint32(client.ID()),
		Interrupt: func(id uint32, _ int) { client.Interrupt(int64(id)) },
		Wait:      []func() error{client.Wait},
		Told:      true,
		Gone:      func(id uint32) (gone, known bool) { return client.Left(int64(id)), !over(client.Gone()) },
		Former:    func(id uint32) bool { return !client.Present(int64(id)) && !over(client.Gone()) },
		Stop:      func() { client.Close() },
	}
	var inner ntb.Attachment
	if err = place.memories(&config, int(file.Fd()), 0, size); err == nil {
		inner, err = ntbfixed.Attach(config)
	}
	if err != nil {
		return ntbfixed.Attached{}, errors.Join(err, client.Close())
	}
	return ntbfixed.Attached{Attachment: inner, Window: config.Own.Len - ntbfixed.PageSize, Replaced: func() bool { return over(client.Gone()) }}, nil
}

// over reports whether a channel is closed.
func over(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
