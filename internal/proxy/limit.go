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

// admit serves a client, or returns the option that limits the map, and how long to wait before the next call; 0 for a
// client that is refused and counted.
func (f *Forwarder) admit(e *lastLine) (cause string, wait time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m, turn := f.m, f.turn
	switch {
	case f.ctx.Err() != nil:
		return ending, 0
	case m.MaxConnections > 0 && len(f.relays)+f.pending >= m.MaxConnections:
		cause, wait = "max-connections", time.Hour // or until one ends
	case !f.takeToken(m.MaxRate):
		cause, wait = "max-rate", time.Second/time.Duration(m.MaxRate)
	default:
		f.past.Total++
		f.pending++
		e.m = m
		// Serve is counted too. So this is never the first one beside the Wait of Drain.
		f.serving.Go(func() { f.serve(e, turn) })
		return "", 0
	}
	if m.WhenFull != letWait {
		f.past.Refused++
		wait = 0
	}
	return cause, wait
}

// takeToken reports whether a map may take a connection now, of so many a second, which may come all at once. The
// caller holds mu.
func (f *Forwarder) takeToken(rate int) bool {
	if rate == 0 {
		return true
	}
	now := time.Now()
	f.tokens = min(float64(rate), f.tokens+now.Sub(f.filled).Seconds()*float64(rate))
	f.filled = now
	if f.tokens < 1 {
		return false
	}
	f.tokens--
	return true
}

// wake wakes who waits for c, which has room for one.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
