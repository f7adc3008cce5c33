package bounce

import (
	"time"

	"github.com/ntbnet/ntbnet/internal/lock"
)

// deadline stops the waits of a half at a time.
type deadline struct {
	signal *signal // immutable

	mu lock.Mutex[lock.Wait]
	// mu guards the following.
	timer *time.Timer // calls expire; made with the first deadline
	set   bool        // timer is set, and expire has not taken that into account
	late  int         // calls of expire to come for deadlines that were moved
}

// limit makes waits end after left, or never if they are not limited.
func (d *deadline) limit(limited bool, left time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopLocked()
	switch {
	case !limited:
		d.signal.stop.And(^uint32(stopDeadline))
	case left <= 0:
		d.signal.interrupt(stopDeadline)
	default:
		d.signal.stop.And(^uint32(stopDeadline))
		d.set = true
		if d.timer == nil {
			d.timer = time.AfterFunc(left, d.expire)
		} else {
			d.timer.Reset(left)
		}
	}
}

// expire runs when the timer fires, perhaps after the deadline was moved.
func (d *deadline) expire() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.late > 0 {
		d.late--
		return
	}
	d.set = false
	d.signal.interrupt(stopDeadline)
}

// stop is called when the connection ends.
func (d *deadline) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopLocked()
}

// stopLocked stops the timer, if it is set. The caller holds mu.
func (d *deadline) stopLocked() {
	if d.set && !d.timer.Stop() {
		d.late++ // expire waits for mu, or will
	}
	d.set = false
}
