package proxy

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/sdp"
)

// After an error of Accept, serve waits for this long, and for twice as long after
// each further error.
const (
	acceptBackoffMin = 5 * time.Millisecond
	acceptBackoffMax = time.Second
)

// door accepts the connections of a forwarder.
type door struct {
	lns       []net.Listener  // one for each network; immutable
	listening context.Context // ends when listening does
	end       context.CancelFunc
	work      sync.WaitGroup // of serve, and of connections

	mu sync.Mutex // held by serve where it adds itself to work, and by shut
}

// serve has start serve what is accepted, until shut or an error that does not pass.
func (d *door) serve(log *journal, start func(net.Conn)) error {
	d.mu.Lock()
	if d.listening.Err() != nil {
		d.mu.Unlock()
		return nil
	}
	d.work.Add(1) // so that one that is accepted while listening ends is served
	d.mu.Unlock()
	defer d.work.Done()
	ended := make(chan error, len(d.lns))
	for _, ln := range d.lns {
		d.work.Go(func() { ended <- d.accept(ln, log, start) })
	}
	for range d.lns {
		if err := <-ended; err != nil {
			return err
		}
	}
	return nil
}

// accept is serve for one listener.
func (d *door) accept(ln net.Listener, log *journal, start func(net.Conn)) error {
	wait := acceptBackoffMin
	for {
		c, err := ln.Accept()
		switch {
		case err == nil:
			wait = acceptBackoffMin
			start(c)
			continue
		case d.listening.Err() != nil:
			return nil
		case !mayPass(err):
			return err
		}
		if left, ok := log.limited.allow(); ok {
			log.Warn("cannot accept, tries again", "map", log.at, "reason", err, "left_out", left)
		}
		if !pause(d.listening, wait) {
			return nil
		}
		wait = min(2*wait, acceptBackoffMax)
	}
}

// mayPass reports whether an error of Accept concerns one connection or resources,
// and not the listener itself.
func mayPass(err error) bool {
	for _, fatal := range []error{net.ErrClosed, syscall.EBADF, syscall.EINVAL, syscall.ENOTSOCK, syscall.EOPNOTSUPP} {
		if errors.Is(err, fatal) {
			return false
		}
	}
	return true
}

// shut has stop end each listener, unless that has been done.
func (d *door) shut(stop func(net.Listener) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.listening.Err() != nil {
		return
	}
	d.end()
	for _, ln := range d.lns {
		stop(ln)
	}
}

// handover leaves the port of SDP to a proxy that takes the place of this one. close closes its listener.
func handover(ln net.Listener) error {
	if l, ok := ln.(*sdp.Listener); ok {
		l.Handover()
		return nil
	}
	return ln.Close()
}

// close closes what was handed over.
func (d *door) close() {
	for _, ln := range d.lns {
		if l, ok := ln.(*sdp.Listener); ok {
			l.Close()
		}
	}
}

// pause returns false if ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
