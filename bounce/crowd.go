package bounce

import (
	"sync"
	"sync/atomic"
	"time"
)

// crowd tells when this machine has no processor to spare for spinning. A process
// that spins uses up its share, and then waits for milliseconds while others run;
// one that sleeps is run as soon as it is woken. So when the system has stopped
// one of our threads to run somebody else, nobody here spins for a while, and for
// longer if it happens again soon.
type crowd struct {
	until atomic.Int64 // time from epoch before which nobody spins

	mu    sync.Mutex
	stops int64         // involuntary context switches at the last look; guarded by mu
	pause time.Duration // the last one; guarded by mu
	end   time.Duration // of the last one; guarded by mu
}

const (
	firstPause = 2 * time.Millisecond
	lastPause  = 256 * time.Millisecond
)

var (
	epoch    = time.Now()
	crowding = crowd{stops: -1}
)

// now tells if spinning must wait. at is the present time.
func (c *crowd) now(at time.Time) bool {
	return int64(at.Sub(epoch)) < c.until.Load()
}

// look asks the system whether we were stopped since the last look. It is a
// system call, made only when a wait took longer than it should.
func (c *crowd) look(at time.Time) {
	if !c.mu.TryLock() {
		return // somebody else is looking
	}
	defer c.mu.Unlock()
	stops := involuntarySwitches()
	was := c.stops
	c.stops = stops
	if was < 0 || stops == was {
		return
	}
	since := at.Sub(epoch)
	if since < c.end+4*c.pause {
		c.pause = min(2*c.pause, lastPause)
	} else {
		c.pause = firstPause
	}
	c.end = since + c.pause
	c.until.Store(int64(c.end))
}
