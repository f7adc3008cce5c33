package proxy

import (
	"context"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	"github.com/ntbnet/ntbnet/internal/shm/unixsock"
	"github.com/ntbnet/ntbnet/sdp"
)

// A target is down after so many dials in a row that failed. Without active checks it is up again after downTime; with
// them, after so many that succeeded.
const (
	checksToFall = 3
	checksToRise = 2
	downTime     = 10 * time.Second
)

// Between rounds through all targets a connection waits this long, and twice as long each time.
const (
	retryMin = 100 * time.Millisecond
	retryMax = 2 * time.Second
)

// health is what a forwarder knows of a target. The forwarder's mu guards it.
type health struct {
	open   int // connections
	failed int // dials in a row
	worked int // dials in a row, while it is down
	down   bool
	until  time.Time // it is down, unless there are active checks

	// Of all dials, for operators.
	connected, refused int64
	took               time.Duration // all dials that connected, in sum
}

// of returns the health of a target. The caller holds mu.
func (f *Forwarder) of(t Endpoint) *health {
	h := f.health[t]
	if h == nil {
		h = new(health)
		f.health[t] = h
	}
	return h
}

// opened counts an open connection, or one less, of its target. The caller holds mu.
func (f *Forwarder) opened(e *lastLine, n int) {
	if !e.m.Transparent { // which may have any number of targets
		f.of(e.target).open += n
	}
}

// isDown reports whether a target is to be tried last. The caller holds mu.
func (f *Forwarder) isDown(m *Map, t Endpoint) bool {
	h := f.of(t)
	return h.down && (m.Check > 0 || time.Now().Before(h.until))
}

// order returns the targets in the order in which a connection tries them. Targets that are down come last.
func (f *Forwarder) order(m *Map) []Endpoint {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := slices.Clone(m.Targets)
	switch {
	case len(all) < 2:
	case m.Balance == roundRobin:
		f.next++
		at := f.next % len(all)
		all = append(all[at:], all[:at]...)
	case m.Balance == leastConn:
		slices.SortStableFunc(all, func(a, b Endpoint) int { return f.of(a).open - f.of(b).open })
	}
	slices.SortStableFunc(all, func(a, b Endpoint) int { return rank(f.isDown(m, a)) - rank(f.isDown(m, b)) })
	return all
}

// rank returns where a target comes in the order: those that are down are last.
func rank(down bool) int {
	if down {
		return 1
	}
	return 0
}

// dialled notes how a dial of a target ended, and how long it took.
func (f *Forwarder) dialled(t Endpoint, took time.Duration, err error) {
	f.mu.Lock()
	h := f.of(t)
	before := h.down
	if err == nil {
		h.connected++
		h.took += took
		h.failed = 0
		h.worked++
		h.down = h.down && f.m.Check > 0 && h.worked < checksToRise
	} else {
		h.refused++
		h.worked = 0
		h.failed++
		h.down = h.failed >= checksToFall
		h.until = time.Now().Add(downTime)
	}
	after := h.down
	f.mu.Unlock()
	if before == after {
		return
	}
	if after {
		f.env.log.Warn("a target is down", "map", f.addr.String(), "target", t.String(), "reason", dialCause(err))
	} else {
		f.env.log.Info("a target is up", "map", f.addr.String(), "target", t.String())
	}
}

// dial connects to the first target that answers, and notes the last one that it tried.
func (f *Forwarder) dial(e *lastLine) (c net.Conn, err error) {
	wait := retryMin
	for round := 0; ; round++ {
		if e.m.Transparent {
			if c, err = f.dialTarget(e); err == nil || err == errRedirectedAgain {
				return c, err
			}
		}
		for _, t := range f.order(e.m) {
			e.target = t
			begun := time.Now()
			c, err = f.dialOne(t, e.m, e)
			if f.ctx.Err() == nil {
				f.dialled(t, time.Since(begun), err)
			}
			if err == nil || f.ctx.Err() != nil {
				return c, err
			}
		}
		if round == e.m.Retries || !pause(f.ctx, wait/2+rand.N(wait/2)) {
			return nil, err
		}
		wait = min(2*wait, retryMax)
	}
}

// dialOne connects to a target for a client, or for a check if e is nil.
func (f *Forwarder) dialOne(t Endpoint, m *Map, e *lastLine) (net.Conn, error) {
	c, err := f.connect(t, m.DialTimeout)
	if err != nil {
		return nil, err
	}
	if err := f.sendHeader(c, m, e); err != nil {
		reset(c)
		return nil, err
	}
	return c, nil
}

func (f *Forwarder) connect(t Endpoint, timeout time.Duration) (net.Conn, error) {
	switch t.Network {
	case networkSDP:
		d := sdp.Dialer{Timeout: timeout, Fabric: f.env.fabric}
		return d.DialContext(f.ctx, t.Network, t.Address)
	case networkUnix:
		return f.dialUnix(t.Address, timeout)
	}
	d := tcpDialer(timeout)
	d.Control = connectAhead
	return d.DialContext(f.ctx, t.Network, t.Address)
}

func tcpDialer(timeout time.Duration) *net.Dialer {
	d := &net.Dialer{Timeout: timeout, KeepAlive: -1} // see keepAlive
	d.SetMultipathTCP(false)                          // see listen
	return d
}

// dialUnix connects to a path, whose process may be of another user.
func (f *Forwarder) dialUnix(path string, timeout time.Duration) (net.Conn, error) {
	ctx := f.ctx
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	c, err := unixsock.Dial(ctx, path)
	if err != nil {
		return nil, err
	}
	return unixsock.Plain(c), nil
}

// pause returns false if ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// check dials the targets now and then, as long as the map says so, until listening ends.
func (f *Forwarder) check() {
	for {
		m := f.serves()
		var next <-chan time.Time
		var timer *time.Timer
		if m.Check > 0 {
			timer = time.NewTimer(m.Check)
			next = timer.C
		}
		select {
		case <-next:
			for _, t := range m.Targets {
				begun := time.Now()
				c, err := f.dialOne(t, m, nil)
				took := time.Since(begun)
				if err == nil {
					c.Close()
				}
				if f.ctx.Err() != nil || f.stopped() {
					break
				}
				f.dialled(t, took, err)
			}
		case <-f.changed:
		case <-f.stop:
		}
		if timer != nil {
			timer.Stop()
		}
		if f.stopped() {
			return
		}
	}
}
