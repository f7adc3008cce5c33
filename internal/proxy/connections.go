package proxy

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// errDrainEnded is the cause for connections that are cut because they outlive
// Drain or Close.
var errDrainEnded = errors.New("the proxy ends")

// errMapGone is the cause for connections that are cut because they outlive their map.
var errMapGone = errors.New("the map was changed or removed")

// ending is the cause for a client that came when connections were cut. It is not counted.
const ending = "ending"

// connections are those of a forwarder: how many there may be, which are open, and what came of them.
type connections struct {
	// ctx ends when connections must end. It also ends dials under way.
	ctx    context.Context
	cancel context.CancelFunc
	freed  chan struct{} // wakes a client that waits

	mu      sync.Mutex
	rate    *rate.Limiter   // of new ones; guarded by mu
	expired int             // connections of turns below it are cut; guarded by mu
	relays  map[*relay]bool // open ones; guarded by mu
	pending int             // accepted ones whose target is being dialled; guarded by mu
	past    Stats           // sums, without the open ones; guarded by mu
}

// init prepares for connections of m.
func (c *connections) init(m *Map) {
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.freed, c.relays = make(chan struct{}, 1), make(map[*relay]bool)
	c.rate = rate.NewLimiter(m.rate(), m.MaxRate)
}

// rate returns how many new connections there may be a second. So many may come at once.
func (m *Map) rate() rate.Limit {
	if m.MaxRate == 0 {
		return rate.Inf
	}
	return rate.Limit(m.MaxRate)
}

// limit has new connections keep to the rate of another map. If that is another rate, it begins with all of a burst.
func (c *connections) limit(m *Map) {
	c.mu.Lock()
	if c.rate.Burst() != m.MaxRate {
		c.rate = rate.NewLimiter(m.rate(), m.MaxRate)
	}
	c.mu.Unlock()
	wake(c.freed)
}

// admit counts a client as pending. Or it returns the option that limits the map, and how long to wait before the next
// call; 0 for a client that is refused and counted.
func (c *connections) admit(m *Map) (cause string, wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.ctx.Err() != nil:
		return ending, 0
	case m.MaxConnections > 0 && len(c.relays)+c.pending >= m.MaxConnections:
		cause, wait = "max-connections", time.Hour // or until one ends
	case !c.rate.Allow():
		cause, wait = "max-rate", time.Second/time.Duration(max(m.MaxRate, 1))
	default:
		c.past.Total++
		c.pending++
		return "", 0
	}
	if m.WhenFull != letWait {
		c.past.Refused++
		wait = 0
	}
	return cause, wait
}

// count changes the number of pending clients and the counters.
func (c *connections) count(pending int, f func(*Stats)) {
	c.mu.Lock()
	c.pending += pending
	f(&c.past)
	c.mu.Unlock()
	wake(c.freed)
}

// begin makes a pending client an open connection.
func (c *connections) begin(r *relay) {
	c.mu.Lock()
	c.pending--
	c.relays[r] = true
	ended, expired := c.ctx.Err() != nil, r.turn < c.expired
	c.mu.Unlock()
	switch { // cut or expire has run already
	case ended:
		r.abort(errDrainEnded, byProxy)
	case expired:
		r.abort(errMapGone, byProxy)
	}
}

// end counts what came of an open connection.
func (c *connections) end(r *relay, how result) {
	c.count(0, func(past *Stats) {
		delete(c.relays, r)
		past.add(r)
		switch how {
		case aborted:
			past.Aborted++
		case checked:
			past.Total--
			past.Checks++
		}
	})
}

// open returns the open connections.
func (c *connections) open() []*relay {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.relays))
}

// stats returns the counters.
func (c *connections) stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.past
	s.Open = len(c.relays) + c.pending
	for r := range c.relays {
		s.add(r)
	}
	return s
}

// expire cuts the connections of turns below one.
func (c *connections) expire(turn int) {
	c.mu.Lock()
	c.expired = max(c.expired, turn)
	c.mu.Unlock()
	for _, r := range c.open() {
		if r.turn < turn {
			r.abort(errMapGone, byProxy)
		}
	}
}

// cut ends all connections at once, and returns how many.
func (c *connections) cut() int {
	c.mu.Lock()
	c.cancel() // begin aborts what comes after this
	n := len(c.relays) + c.pending
	c.mu.Unlock()
	for _, r := range c.open() {
		r.abort(errDrainEnded, byProxy)
	}
	return n
}

// wake wakes who waits for c, which has room for one.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Stats are the counters of a [Forwarder] since its start.
type Stats struct {
	// Open is the number of connections that are served now, including those whose
	// target is being dialled.
	Open int `json:"open"`
	// Total is the number of connections that were accepted and neither refused nor checks.
	Total int64 `json:"total"`
	// Refused is the number of clients that were turned away before a target was dialled.
	Refused int64 `json:"refused"`
	// Failed is the number of connections of which no target could be reached.
	Failed int64 `json:"failed"`
	// Aborted is the number of connections cut by a reset or another error, or by the proxy.
	Aborted int64 `json:"aborted"`
	// Checks is the number of clients that connected and closed without a byte either way, as the checks of
	// another proxy do. Until it ends, such a client is in Open and Total.
	Checks int64 `json:"checks"`
	// ToTarget and FromTarget are the bytes passed on. Where neither side is
	// SDP, they are added when a direction ends.
	ToTarget   int64 `json:"to_target"`
	FromTarget int64 `json:"from_target"`
}

func (s *Stats) add(r *relay) {
	s.ToTarget += r.toTarget.bytes.Load()
	s.FromTarget += r.fromTarget.bytes.Load()
}
