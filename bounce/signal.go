package bounce

import (
	"os"
	"sync/atomic"

	"github.com/ntbnet/ntbnet/ntb"
)

// Reasons to stop waiting, as bits of signal.stop.
const (
	stopClosed   = 1 << iota // Close was called
	stopDeadline             // the deadline has passed
	stopShut                 // CloseRead or CloseWrite was called
	stopDown                 // the link is down
	stopBroken               // the peer broke the protocol
	stopCut                  // with stopDown: the peer was not done with the connection
)

// stopErr returns the error of a Read or Write that must not access the connection, if
// any.
func stopErr(stop uint32) error {
	switch {
	case stop&stopClosed != 0:
		return ErrClosed
	case stop&stopDeadline != 0:
		return os.ErrDeadlineExceeded
	}
	return nil
}

// signal wakes the goroutine that waits in a half, perhaps to stop.
type signal struct {
	// wake has capacity 1. A token in it means: check again. There may be one when
	// nothing waits, which costs the next wait one round.
	wake chan struct{}
	stop atomic.Uint32
}

// interrupt sets a reason to stop, and wakes the waiter.
func (s *signal) interrupt(why uint32) {
	s.stop.Or(why)
	s.notify()
}

// notify wakes the waiter, which then finds what the caller stored before.
func (s *signal) notify() {
	// A channel that appears full is left alone, at once and without a lock. The waiter
	// that takes the token out of it must not look before our stores are visible (pair S9).
	ntb.Fence()
	select {
	case s.wake <- struct{}{}:
	default: // there is a token already
	}
}
