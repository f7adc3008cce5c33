package proxy

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/sdp"
)

// Causes of the end of silent connections.
var (
	errIdle       = errors.New("idle-timeout")
	errHalfClosed = errors.New("half-closed-timeout")
)

// silence cuts a relay that passes on nothing for too long. Its timer runs from the start if idle connections have a
// limit, and from the first end of file on if half-closed ones have one.
type silence struct {
	relay      *relay        // set by begin
	idle, half time.Duration // 0 for no limit; immutable

	mu      sync.Mutex
	timer   *time.Timer // nil while none is needed
	over    bool        // the relay has ended
	closing bool        // one direction has ended in order
	moved   int64       // at the last look
	since   time.Time   // nothing has moved
}

// begin starts the timer if idle connections are cut.
func (s *silence) begin(r *relay) {
	s.relay = r
	if s.idle > 0 {
		s.start()
	}
}

// halfClosed notes that a direction has ended in order.
func (s *silence) halfClosed() {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	s.start()
}

func (s *silence) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moved, s.since = s.relay.activity(), time.Now()
	switch {
	case s.over:
	case s.timer != nil:
		s.timer.Reset(s.pause(0))
	case s.pause(0) > 0:
		s.timer = time.AfterFunc(s.pause(0), s.look)
	}
}

// limit returns how long the relay may be silent, 0 for ever, and the cause if it was for longer. The caller holds mu.
func (s *silence) limit() (time.Duration, error) {
	if s.closing && s.half > 0 && (s.idle == 0 || s.half < s.idle) {
		return s.half, errHalfClosed
	}
	return s.idle, errIdle
}

// pause returns how long to wait before the next look, 0 for ever, when nothing has moved for a time. The caller holds mu.
func (s *silence) pause(silent time.Duration) time.Duration {
	limit, _ := s.limit()
	wait := time.Duration(0)
	if limit > 0 {
		wait = max(min(limit-silent, limit/4), time.Millisecond)
	}
	if s.closing && s.relay.overSDP() && (wait == 0 || wait > resetGrace) {
		wait = resetGrace // nothing else notices a reset of a side that has sent its end of file
	}
	return wait
}

func (s *silence) look() {
	s.mu.Lock()
	if s.over {
		s.mu.Unlock()
		return
	}
	now, moved := time.Now(), s.relay.activity()
	if moved != s.moved {
		s.moved, s.since = moved, now
	}
	limit, cause := s.limit()
	by, silent := byProxy, now.Sub(s.since)
	if reset := s.relay.resetAfterEnd(); reset != nobody {
		by, cause, limit, silent = reset, syscall.ECONNRESET, 1, 1
	}
	cut := limit > 0 && silent >= limit
	if !cut {
		s.timer.Reset(s.pause(silent))
	}
	s.mu.Unlock()
	if cut {
		s.relay.abort(cause, by)
	}
}

// end stops the timer. A look may be under way, which has no effect any more.
func (s *silence) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	if s.timer != nil {
		s.timer.Stop()
	}
}

// overSDP reports whether a side is SDP.
func (r *relay) overSDP() bool {
	for _, c := range []net.Conn{r.client, r.target} {
		if _, ok := c.(*sdp.Conn); ok {
			return true
		}
	}
	return false
}

// resetAfterEnd returns a side of SDP that has sent its end of file, which was passed on, and then a reset.
func (r *relay) resetAfterEnd() side {
	for _, e := range []struct {
		by    side
		conn  net.Conn
		clean *atomic.Bool
	}{{byClient, r.client, &r.toTarget.clean}, {byTarget, r.target, &r.fromTarget.clean}} {
		if s, ok := e.conn.(*sdp.Conn); ok && e.clean.Load() && s.WasReset() {
			return e.by
		}
	}
	return nobody
}
