package proxy

import (
	"sync"
	"time"
)

// A limiter allows some lines at once, and one per second after that.
const (
	limitBurst    = 5 // for lines that have many causes
	limitInterval = time.Second
)

// limiter keeps a target that is down, or many clients, from filling the log. Its
// zero value is ready to use.
type limiter struct {
	mu   sync.Mutex
	used int       // of the burst; guarded by mu
	last time.Time // when used was last updated; guarded by mu
	left int       // lines left out since the last one; guarded by mu
}

// allow reports whether a line may be written, and how many were left out before it.
// burst is how many may be written at once. It is the same in each call.
func (l *limiter) allow(burst int) (left int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if gained := int(now.Sub(l.last) / limitInterval); gained > 0 {
		l.used = max(0, l.used-gained)
		l.last = now
	}
	if l.used == burst {
		l.left++
		return 0, false
	}
	l.used++
	left, l.left = l.left, 0
	return left, true
}
