//go:build linux && (amd64 || arm64)

package ntbfixed

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ntbnet/ntbnet/ntb"
)

// checkEvery is how often Open checks that while it waits for the other side.
const checkEvery = 100 * time.Millisecond

// reattaching implements ntb.Attachment. A session that is up stays up when the memory is replaced.
type reattaching struct {
	attach  func(ctx context.Context) (Attached, error) // immutable
	opening chan struct{}                               // capacity 1: Open or Close is under way
	closed  chan struct{}                               // closed by Close
	once    sync.Once                                   // for Close

	now Attached // guarded by opening; zero while there is nothing to be attached to
}

// Reattach returns an attachment that calls attach to be attached to what there is when a session is opened.
// While the other side is waited for, and before the next session, it calls Replaced, and attach again if that
// is true. It does so too if an error of attach or Open wraps [ErrReplaced].
func Reattach(attach func(ctx context.Context) (Attached, error)) ntb.Attachment {
	return &reattaching{attach: attach, opening: make(chan struct{}, 1), closed: make(chan struct{})}
}

// Open implements ntb.Attachment.
func (r *reattaching) Open(ctx context.Context) (ntb.Device, error) {
	select {
	case r.opening <- struct{}{}:
		defer func() { <-r.opening }()
	case <-r.closed:
		return nil, ntb.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case <-r.closed:
		return nil, ntb.ErrClosed
	default:
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-r.closed:
			cancel(ntb.ErrClosed)
		case <-ctx.Done():
		}
	}()
	for {
		d, err := r.open(ctx)
		if !errors.Is(err, ErrReplaced) || ctx.Err() != nil {
			return d, err
		}
	}
}

// open opens a session at what there is now. The error is ErrReplaced if that is replaced meanwhile,
// or was before without notice yet. The caller holds opening.
func (r *reattaching) open(ctx context.Context) (ntb.Device, error) {
	if err := r.attachNow(ctx); err != nil {
		return nil, errors.Join(err, context.Cause(ctx))
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go r.now.watch(ctx, func() { cancel(ErrReplaced) })
	d, err := r.now.Open(ctx)
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		err = errors.Join(cause, err)
	}
	return d, err
}

// watch calls stop when there is other memory, until ctx is done.
func (a Attached) watch(ctx context.Context, stop func()) {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	for !a.Replaced() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
	stop()
}

// attachNow attaches the end unless it is attached to what there is now. The caller holds opening.
func (r *reattaching) attachNow(ctx context.Context) (err error) {
	if r.now.Attachment != nil && !r.now.Replaced() {
		return nil
	}
	if err := r.detach(); err != nil {
		return err
	}
	r.now, err = r.attach(ctx)
	return err
}

// detach ends what attachNow began. The caller holds opening.
func (r *reattaching) detach() error {
	if r.now.Attachment == nil {
		return nil
	}
	err := r.now.Close()
	r.now = Attached{}
	return err
}

// Close implements ntb.Attachment.
func (r *reattaching) Close() (err error) {
	r.once.Do(func() {
		close(r.closed)
		r.opening <- struct{}{}
		defer func() { <-r.opening }()
		err = r.detach()
	})
	return err
}
