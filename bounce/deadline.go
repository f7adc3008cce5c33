package bounce

import "time"

// setLimit makes waits end after left, or never if they are not limited.
func (w *waiter) setLimit(limited bool, left time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopTimerLocked()
	switch {
	case !limited:
		w.stop.And(^uint32(stopDeadline))
	case left <= 0:
		w.interrupt(stopDeadline)
	default:
		w.stop.And(^uint32(stopDeadline))
		w.timing = true
		if w.timer == nil {
			w.timer = time.AfterFunc(left, w.expire)
		} else {
			w.timer.Reset(left)
		}
	}
}

// expire runs when the timer fires, perhaps after the deadline was moved.
func (w *waiter) expire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.late > 0 {
		w.late--
		return
	}
	w.timing = false
	w.interrupt(stopDeadline)
}

// stopTimer is called at the end of the connection.
func (w *waiter) stopTimer() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopTimerLocked()
}

// stopTimerLocked stops the timer, if it is set. The caller holds mu.
func (w *waiter) stopTimerLocked() {
	if w.timing && !w.timer.Stop() {
		w.late++ // expire waits for mu, or will
	}
	w.timing = false
}
