package listen

import (
	"time"

	"github.com/ntbnet/ntbnet/internal/lock"
)

// deadline is a time at which a channel is closed. The time can be changed.
type deadline struct {
	mu      lock.Mutex[lock.Accept]
	timer   *time.Timer   // guarded by mu
	expired chan struct{} // closed at the deadline; guarded by mu
}

func (d *deadline) init() { d.expired = make(chan struct{}) }

// set changes the deadline. The zero time means never.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil && !d.timer.Stop() {
		<-d.expired // the timer has fired, and its function closes the channel
	}
	d.timer = nil
	closed := isClosed(d.expired)
	if t.IsZero() {
		if closed {
			d.expired = make(chan struct{})
		}
		return
	}
	if wait := time.Until(t); wait > 0 {
		if closed {
			d.expired = make(chan struct{})
		}
		expired := d.expired
		d.timer = time.AfterFunc(wait, func() { close(expired) })
		return
	}
	if !closed {
		close(d.expired)
	}
}

// wait returns the channel that is closed at the deadline. An Accept that waits on
// it wakes at the deadline that was set when it began. It also wakes if the
// deadline is moved to the past.
func (d *deadline) wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.expired
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
