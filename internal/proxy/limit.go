package proxy

import (
	"sync"
	"time"
)

// A limiter lets some lines through at once and one per second after that.
const (
	limitBurst    = 5 // for what has many causes
	limitInterval = time.Second
)

// limiter keeps a target that is down, or a crowd of clients, from filling the log.
// Its zero value is ready.
type limiter struct {
	mu   sync.Mutex
	used int       // guarded by mu; of the burst
	last time.Time // guarded by mu; when used was last brought up to date
	left int       // guarded by mu; lines left out since the last one
}

// allow reports whether a line may be written, and how many were left out before it.
// burst is how many may be written at once, the same in each call.
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
