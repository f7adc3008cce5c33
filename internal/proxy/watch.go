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

// lookTime is how often a watch looks for resets. So what was sent before a reset has time to arrive.
const lookTime = time.Second

// watch looks at a relay from time to time, as long as there is something that the calls of its goroutines do not
// notice: that nothing was passed on for too long, and that a side was reset from which nobody reads. A first look has
// the kernel keep connections alive that last so long.
type watch struct {
	relay      *relay        // set by begin
	idle, half time.Duration // the relay may be silent, the latter when one direction has ended; 0 for ever; immutable
	keepAlive  time.Duration // 0 for none; immutable
	runs       atomic.Bool   // there will be a look

	mu       sync.Mutex
	timer    *time.Timer // of the next look
	kept     bool        // keepAlive is set
	over     bool        // the relay has ended
	closing  bool        // one direction has ended in order
	reset    side        // which was reset at the last look
	activity int64       // at the last look
	since    time.Time   // there was none
}

// begin begins to look at a relay.
func (w *watch) begin(r *relay) {
	w.relay, w.since = r, time.Now()
	first := lookTime
	if w.idle > 0 {
		w.activity = r.activity()
		first = min(first, w.pause(0))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.runs.Store(true)
	w.timer = time.AfterFunc(first, w.look)
}

// run has looks while a Write waits.
func (w *watch) run() {
	if !w.runs.Load() { // pairs with the store in look
		w.start()
	}
}

func (w *watch) start() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over && !w.runs.Swap(true) {
		w.timer.Reset(lookTime)
	}
}

// halfClosed notes that a direction has ended in order.
func (w *watch) halfClosed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over {
		w.closing, w.since = true, time.Now()
		w.runs.Store(true)
		w.timer.Reset(w.pause(0))
	}
}

// limit returns how long the relay may be silent, 0 for ever, and the cause if it was for longer. The caller holds mu.
func (w *watch) limit() (time.Duration, error) {
	if w.closing && w.half > 0 && (w.idle == 0 || w.half < w.idle) {
		return w.half, errHalfClosed
	}
	return w.idle, errIdle
}

// pause returns how long to wait before the next look, 0 for ever, when it was silent for a time. The caller holds mu.
func (w *watch) pause(silent time.Duration) time.Duration {
	wait := time.Duration(0)
	if limit, _ := w.limit(); limit > 0 {
		wait = max(min(limit-silent, limit/4), time.Millisecond)
	}
	if (w.closing || w.relay.writes()) && (wait == 0 || wait > lookTime) {
		wait = lookTime
	}
	return wait
}

func (w *watch) look() {
	w.mu.Lock()
	if w.over {
		w.mu.Unlock()
		return
	}
	if !w.kept {
		w.kept = true
		keepAlive(w.relay.client, w.keepAlive)
		keepAlive(w.relay.target, w.keepAlive)
	}
	now, activity, reset := time.Now(), w.relay.activity(), w.relay.wasReset()
	stuck := activity == w.activity
	if !stuck {
		w.activity, w.since = activity, now
	}
	silent := now.Sub(w.since)
	limit, cause := w.limit()
	by, cut := byProxy, limit > 0 && silent >= limit
	if reset != nobody && w.reset != nobody && stuck { // what it had sent before was passed on, or cannot be
		by, cause, cut = reset, syscall.ECONNRESET, true
	}
	w.reset = reset
	w.runs.Store(false) // before pause asks for writes, which look at it in the other order
	if pause := w.pause(silent); !cut && pause > 0 {
		w.runs.Store(true)
		w.timer.Reset(pause)
	}
	w.mu.Unlock()
	if cut {
		w.relay.abort(cause, by)
	}
}

// keepAlive has the kernel find out whether the peer of a TCP connection is there.
func keepAlive(c net.Conn, after time.Duration) {
	if t, ok := c.(*net.TCPConn); ok {
		t.SetKeepAliveConfig(net.KeepAliveConfig{Enable: after > 0, Idle: after, Interval: after, Count: 9})
	}
}

// end stops the timer. A look may be under way, which has no effect any more.
func (w *watch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.timer.Stop()
}

// writes reports whether a direction is in a Write, or one has failed.
func (r *relay) writes() bool { return r.toTarget.writing.Load() || r.fromTarget.writing.Load() }

// activity returns a number that changes while bytes are passed on, or come. A Write is counted at its end, and what
// the kernel moves likewise; so what the connections know is counted too.
func (r *relay) activity() int64 {
	sum := r.toTarget.bytes.Load() + r.fromTarget.bytes.Load()
	for _, c := range []net.Conn{r.client, r.target} {
		switch c := c.(type) {
		case *net.TCPConn:
			sum += moved(c)
		case *sdp.Conn:
			sum += int64(c.Stats().BytesWritten())
		}
	}
	return sum
}

// wasReset returns a side that was reset, if the system tells.
func (r *relay) wasReset() side {
	switch {
	case wasReset(r.client):
		return byClient
	case wasReset(r.target):
		return byTarget
	}
	return nobody
}

func wasReset(c net.Conn) bool {
	if s, ok := c.(*sdp.Conn); ok {
		return s.WasReset()
	}
	return hasError(c)
}
