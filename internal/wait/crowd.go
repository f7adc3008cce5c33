package wait

import (
	"sync/atomic"
	"time"

	"github.com/ntbnet/ntbnet/internal/lock"
)

const (
	// aTurn is how long a member may have its turn while others are ready. A change of turns takes
	// as long as some tens of answers, and makes a few of them late. So a quick turn in which
	// answers take longer than usual lasts until it has had enoughHits, or for mostTurn.
	aTurn      = 250 * time.Microsecond
	mostTurn   = 2 * aTurn
	enoughHits = 500
	// A turn is quick if its hits took no longer than quickHit on average. A caller that takes
	// longer between its waits does work, and other processors could serve others meanwhile.
	quickHit = 4 * time.Microsecond
	// A quick turn of tryTurn opens the crowd. mostSlow turns in a row that are not quick close it.
	tryTurn  = 25 * time.Microsecond
	mostSlow = 4
	// A crowd opens for fewMembers, and closes when there are half as many. Each of so few is
	// served sooner if its peer wakes it.
	fewMembers = 12
	// mostMembers bounds the time of a scan.
	mostMembers = 256
	// A wait that takes longer than hurried, or unhurried at the end that accepted the connection, gives
	// its turn to a member that is ready. So the other end follows when one end has changed
	// its turn, and the two do not look for each other at the same time. Where hits take long anyway, as over
	// a bridge, it also has to take longer than timesUsual of them, but no longer than atLast.
	hurried    = 2 * time.Microsecond
	unhurried  = 25 * time.Microsecond
	timesUsual = 3
	atLast     = inCrowd / 4
	// someHits are enough for an average.
	someHits = 8
	// A spin that finds nothing lasts at least inCrowd while the crowd is open, unless its offers become
	// slow. Then all members park, which costs more. The other end may have been stopped by the system
	// for so long.
	inCrowd = 200 * time.Microsecond
	// The crowd closes when nobody has looked after its members for absent.
	absent = 2 * time.Millisecond
)

// Crowd has waits beyond the limit of spins take turns. Without it, the few that spin have
// thousands of answers before another one has any: the peer has to wake it, and it parks again.
//
// The members of a crowd sleep, and are not armed. The waits that spin look after them. One whose
// turn is over, or that takes longer than usual, wakes the first member that is ready, and
// becomes the last member itself. The other end of the link finds out by its own polls, and
// no doorbell is rung.
//
// So the members depend on a wait that spins, and on a caller that soon waits again. That
// is why a crowd opens only behind a turn that was quick, and closes when no turn is. When it opens,
// the waits that have parked for want of a place are woken to become members. When it closes, the
// members park.
//
// All readers of a fabric share a Crowd.
type Crowd struct {
	open    atomic.Bool  // stored under mu
	waiting atomic.Int32 // members, and waits that have parked for want of a place; stored under mu

	mu lock.Mutex[lock.Crowd]
	// mu guards the following.
	members queue
	parked  queue       // for want of a place
	slow    int         // turns in a row that were not quick
	looked  bool        // somebody has looked after the members since the last check
	timer   *time.Timer // calls check while there are members; nil before the first
}

// NewCrowd returns a Crowd that is closed.
func NewCrowd() *Crowd { return &Crowd{} }

// member is a place where goroutines wait, one at a time, and may be in a crowd.
type member struct {
	// Constant.
	crowd    *Crowd
	wake     chan struct{} // a token has the goroutine look again
	accepted bool          // this end of the connection has accepted it

	// The goroutine that waits owns the following.
	began   time.Time     // of its turn
	hits    uint64        // of the Spinner at that time
	usual   time.Duration // average time from hit to hit, 0 if not known
	refused bool          // there was no place for the wait under way

	// Crowd.mu guards the following.
	in         *queue // where it is, or nil
	next, prev *member
	src        Source  // of the wait under way
	end        Outcome // of the last wait as a member
}

// begin begins a turn.
func (m *member) begin(now time.Time, hits uint64) {
	if m != nil {
		m.began, m.hits = now, hits
	}
}

// refuse returns what a wait does for which there is no place.
func (m *member) refuse() Outcome {
	switch {
	case m == nil:
		return None
	case m.crowd.open.Load():
		return Crowded
	}
	m.refused = true
	return None
}

// over reports whether another member has the turn now, because this one was over.
func (m *member) over(now time.Time, hits uint64) bool {
	if m == nil {
		return false
	}
	took, n := now.Sub(m.began), hits-m.hits
	quick, least := took <= time.Duration(n)*quickHit, tryTurn
	if m.crowd.open.Load() {
		least = aTurn
		if quick && n < enoughHits {
			least = mostTurn
		}
	}
	if took < least {
		return false
	}
	m.begin(now, hits)
	return m.crowd.next(quick)
}

// passes reports whether another member has the turn at the time now, because this wait has taken so long.
func (m *member) passes(took time.Duration, now time.Time, hits uint64) bool {
	if m == nil || took < hurried || m.accepted && took < unhurried || !m.crowd.open.Load() {
		return false
	}
	if n := time.Duration(hits - m.hits); n >= someHits {
		m.usual = (now.Sub(m.began) - took) / n
	}
	return took >= min(timesUsual*m.usual, atLast) && m.crowd.scan()
}

// budget returns how long a spin lasts that would else last for d.
func (m *member) budget(d time.Duration) time.Duration {
	if m == nil || d >= inCrowd || !m.crowd.open.Load() {
		return d
	}
	return inCrowd
}

// missed is called after a spin that found nothing, not even for a member.
func (m *member) missed() {
	if m != nil && m.crowd.open.Load() {
		m.crowd.close()
	}
}

// sleep waits until src is ready or stopped. It returns None if the crowd is closed.
func (m *member) sleep(src Source) Outcome {
	if !m.crowd.join(m, src) {
		return None
	}
	for {
		stopped := src.Stopped() // not under mu, since it may take other locks
		if end := m.crowd.look(m, stopped); end != Crowded {
			return end
		}
		<-m.wake
	}
}

// join makes m the last member. It reports false if it may not become one.
func (c *Crowd) join(m *member, src Source) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.open.Load() || c.members.size >= mostMembers {
		return false
	}
	m.src = src
	c.members.add(m)
	c.waiting.Add(1)
	if c.members.size > 1 {
		return true
	}
	c.looked = true
	if c.timer == nil {
		c.timer = time.AfterFunc(absent, c.check)
	} else {
		c.timer.Reset(absent)
	}
	return true
}

// look returns how the wait of m has ended, or Crowded if it goes on.
func (c *Crowd) look(m *member, stopped bool) Outcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.in != nil && !stopped {
		return Crowded // whether src is ready counts when m has its turn
	}
	if m.in != nil {
		c.end(m, Stopped)
	}
	return m.end
}

// end ends the wait of a member. The caller holds mu.
func (c *Crowd) end(m *member, end Outcome) {
	c.members.remove(m)
	c.waiting.Add(-1)
	m.src, m.end = nil, end
}

// next is called at the end of a turn, and reports whether another member has the turn now.
func (c *Crowd) next(quick bool) bool {
	switch waiting := c.waiting.Load(); {
	case c.open.Load() && waiting < fewMembers/2:
		c.close()
		return false
	case !c.open.Load() && (!quick || waiting < fewMembers-1):
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !quick:
		if c.slow++; c.slow >= mostSlow {
			c.disband()
		}
	case !c.open.Load():
		c.open.Store(true)
		for m := range c.parked.all {
			m.tell()
		}
		fallthrough
	default:
		c.slow = 0
	}
	return c.pass()
}

// scan reports whether another member has the turn now.
func (c *Crowd) scan() bool {
	if !c.mu.TryLock() {
		return false // another goroutine scans
	}
	defer c.mu.Unlock()
	return c.pass()
}

// pass gives the turn to the first member that is ready, and reports whether there is one. The
// caller holds mu.
func (c *Crowd) pass() bool {
	c.looked = true
	for m := range c.members.all {
		if m.src.Ready() {
			c.end(m, Hit)
			m.tell()
			return true
		}
	}
	return false
}

// close has the members park.
func (c *Crowd) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.disband()
}

// disband is close for a caller that holds mu.
func (c *Crowd) disband() {
	c.open.Store(false)
	c.slow = 0
	for m := range c.members.all {
		c.end(m, None)
		m.tell()
	}
}

// check closes the crowd if nobody has looked after its members lately.
func (c *Crowd) check() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.looked {
		c.disband()
	}
	c.looked = false
	if c.members.size > 0 {
		c.timer.Reset(absent)
	}
}

// park is called before a wait parks for want of a place.
func (c *Crowd) park(m *member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.parked.add(m)
	c.waiting.Add(1)
	if c.open.Load() { // it was not when the wait was refused a place
		m.tell()
	}
}

// unpark ends park.
func (c *Crowd) unpark(m *member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.parked.remove(m)
	c.waiting.Add(-1)
}

// tell has the goroutine that waits look again.
func (m *member) tell() {
	select {
	case m.wake <- struct{}{}:
	default: // there is a token, behind which the goroutine locks mu
	}
}

// queue is a list of members. Crowd.mu guards it.
type queue struct {
	first, last *member
	size        int
}

func (q *queue) add(m *member) {
	m.in, m.prev = q, q.last
	if q.last == nil {
		q.first = m
	} else {
		q.last.next = m
	}
	q.last = m
	q.size++
}

func (q *queue) remove(m *member) {
	if m.prev == nil {
		q.first = m.next
	} else {
		m.prev.next = m.next
	}
	if m.next == nil {
		q.last = m.prev
	} else {
		m.next.prev = m.prev
	}
	m.in, m.next, m.prev = nil, nil, nil
	q.size--
}

// all yields the members in order. The present one may be removed.
func (q *queue) all(yield func(*member) bool) {
	for m := q.first; m != nil; {
		next := m.next
		if !yield(m) {
			return
		}
		m = next
	}
}
