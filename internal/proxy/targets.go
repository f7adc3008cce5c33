package proxy

import (
	"slices"
	"sync"
	"time"
)

// A target is down after so many dials in a row that failed. Without active checks it is up again after downTime; with
// them, after so many that succeeded.
const (
	checksToFall = 3
	checksToRise = 2
	downTime     = 10 * time.Second
)

// targets is what a forwarder knows of the targets of its maps.
type targets struct {
	log *journal // immutable

	mu     sync.Mutex
	health map[Endpoint]*health // guarded by mu
	next   int                  // place of the last connection among the targets, for roundRobin; guarded by mu
}

// health is what is known of a target. The mu of targets guards it.
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
func (t *targets) of(at Endpoint) *health {
	h := t.health[at]
	if h == nil {
		h = new(health)
		t.health[at] = h
	}
	return h
}

// opened counts an open connection, or one less, of its target.
func (t *targets) opened(e *lastLine, n int) {
	if !e.m.Transparent { // which may have any number of targets
		t.mu.Lock()
		defer t.mu.Unlock()
		t.of(e.target).open += n
	}
}

// knownTarget is a target of a map, and what is known of it.
type knownTarget struct {
	at Endpoint
	health
	last bool // it is down, and so tried last
}

// known returns the targets of a map.
func (t *targets) known(m *Map) (all []knownTarget) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, at := range m.Targets {
		h := *t.of(at)
		all = append(all, knownTarget{at, h, h.down && (m.Check > 0 || time.Now().Before(h.until))})
	}
	return all
}

// order returns the targets in the order in which a connection tries them. Targets that are down come last.
func (t *targets) order(m *Map) (order []Endpoint) {
	all := t.known(m)
	switch {
	case len(all) < 2:
	case m.Balance == roundRobin:
		t.mu.Lock()
		t.next++
		at := t.next % len(all)
		t.mu.Unlock()
		all = slices.Concat(all[at:], all[:at])
	case m.Balance == leastConn:
		slices.SortStableFunc(all, func(a, b knownTarget) int { return a.open - b.open })
	}
	for _, last := range []bool{false, true} {
		for _, k := range all {
			if k.last == last {
				order = append(order, k.at)
			}
		}
	}
	return order
}

// dialled notes how a dial of a target of m ended, and how long it took.
func (t *targets) dialled(m *Map, at Endpoint, took time.Duration, err error) {
	t.mu.Lock()
	h := t.of(at)
	before := h.down
	if err == nil {
		h.connected++
		h.took += took
		h.failed = 0
		h.worked++
		h.down = h.down && m.Check > 0 && h.worked < checksToRise
	} else {
		h.refused++
		h.worked = 0
		h.failed++
		h.down = h.failed >= checksToFall
		h.until = time.Now().Add(downTime)
	}
	after := h.down
	t.mu.Unlock()
	if before == after {
		return
	}
	if after {
		t.log.Warn("a target is down", "map", t.log.at, "target", at.String(), "reason", dialCause(err))
	} else {
		t.log.Info("a target is up", "map", t.log.at, "target", at.String())
	}
}

// check dials the targets now and then, as long as the map says so, until listening ends.
func (f *Forwarder) check() {
	for f.door.listening.Err() == nil {
		m := f.serves()
		var next <-chan time.Time
		if m.Check > 0 {
			next = time.After(m.Check)
		}
		select {
		case <-next:
			for _, at := range m.Targets {
				begun := time.Now()
				c, err := f.dialer.dialOne(at, m, nil)
				took := time.Since(begun)
				if err == nil {
					c.Close()
				}
				if f.door.listening.Err() != nil {
					break
				}
				f.targets.dialled(m, at, took, err)
			}
		case <-f.changed:
		case <-f.door.listening.Done():
		}
	}
}
