package bounce

import "time"

// A queue that grew for a bulk transfer is given back when nothing was read for a
// while. The peer is granted one of the first size again and moves there. The large
// one is freed when the move is read. A timer here and the link's goroutines do the work of
// both sides, since the applications are idle.

// shrinkEvery is how often grown queues are checked. A queue is given back at the
// second check in a row that finds it idle, so after 10 to 20 seconds.
const shrinkEvery = 10 * time.Second

// growing starts the checks. They end when no queue is grown. The caller holds
// p.mu.
func (p *Pool) growing() {
	if p.shrinking || p.down {
		return
	}
	p.shrinking = true
	if p.shrinker == nil {
		p.shrinker = time.AfterFunc(p.shrinkEvery, p.shrink)
	} else {
		p.shrinker.Reset(p.shrinkEvery)
	}
}

// shrink checks all connections.
func (p *Pool) shrink() {
	p.mu.Lock()
	if p.down {
		p.mu.Unlock()
		return
	}
	p.peer.Hold() // the link, which is not down, holds it now
	defer p.peer.Release()
	p.shrinking = false // a queue that grows from here on sets the timer
	pairs := p.all()
	p.mu.Unlock()
	grown := false
	for _, c := range pairs {
		grown = c.shrink() || grown
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if grown {
		p.growing()
	}
}
