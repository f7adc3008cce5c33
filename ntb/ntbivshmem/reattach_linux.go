//go:build linux && (amd64 || arm64)

package ntbivshmem

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ntbnet/ntbnet/ntb"
)

// errReplaced reports that there is other memory now than what an end is attached to.
var errReplaced = errors.New("ntbivshmem: the memory was replaced")

// attached is what a reattaching end is attached to.
type attached struct {
	ntb.Attachment
	window   int         // bytes of a session's windows
	replaced func() bool // reports whether Open is to attach again
}

// checkEvery is how often Open checks that while it waits for the other side.
const checkEvery = 100 * time.Millisecond

// reattaching implements ntb.Attachment. It attaches when a session is opened, and again if what it
// was attached to has been replaced. A session that is up stays up.
type reattaching struct {
	// attach attaches to what there is now. The error is errReplaced if that has gone meanwhile. Immutable.
	attach  func(ctx context.Context) (attached, error)
	opening chan struct{} // capacity 1: Open or Close is under way
	closed  chan struct{} // closed by Close
	once    sync.Once     // for Close

	now attached // guarded by opening; zero while there is nothing to be attached to
}

func newReattaching(attach func(ctx context.Context) (attached, error)) *reattaching {
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
		if !errors.Is(err, errReplaced) || ctx.Err() != nil {
			return d, err
		}
	}
}

// open opens a session at what there is now. The error is errReplaced if that is replaced meanwhile,
// or was before without notice yet. The caller holds opening.
func (r *reattaching) open(ctx context.Context) (ntb.Device, error) {
	if err := r.attachNow(ctx); err != nil {
		return nil, errors.Join(err, context.Cause(ctx))
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go r.now.watch(ctx, func() { cancel(errReplaced) })
	d, err := r.now.Open(ctx)
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		err = errors.Join(cause, err)
	}
	return d, err
}

// watch calls stop when there is other memory, until ctx is done.
func (a attached) watch(ctx context.Context, stop func()) {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	for !a.replaced() {
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
	if r.now.Attachment != nil && !r.now.replaced() {
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
	r.now = attached{}
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
