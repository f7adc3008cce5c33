package wait

import (
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ntbnet/ntbnet/ntb"
)

// crowd is waits of this process that find the limit of spins reached. One goroutine polls for all
// of them, and counts as one that spins. So each goes on soon after what it waits for has come,
// in about the order in which that came, and no side has to wake the other. If they parked, the
// few that spin would answer each other hundreds of times before another one has its turn.
//
// Where fewer than fewWaits are refused a spin, they park: two sides that answer each other at
// once are several times as fast if they spin themselves.
type crowd struct {
	open   atomic.Bool          // waits join, though a spin may be allowed; stored by poll
	polled atomic.Bool          // poll runs, or is about to
	joined atomic.Pointer[turn] // waits that poll has not taken, the last one first

	// The following belong to poll.
	waits []*turn   // in the order in which they joined
	now   time.Time // when the clock was last read
	most  int       // the largest number of waits in the present fewSweeps
	empty int       // sweeps in a row without a wait
	dry   int       // sweeps in a row that ended no wait
}

const (
	fewWaits = 12
	// crowdBudgets is how many times as long as a spin a wait of a crowd lasts.
	crowdBudgets = 4
	// poll reads the clock, and calls Ended, in one of sweepsACheck sweeps. It ends after
	// emptySweeps, and when there were few waits in all of fewSweeps.
	sweepsACheck = 4
	emptySweeps  = 64
	fewSweeps    = 4096
	// sweepsAYield is how many sweeps that end no wait come between two yields.
	sweepsAYield = 8
)

// As many crowds are used as goroutines may spin. Spinners are spread over them.
var (
	crowds  [64]crowd
	members atomic.Uint32
)

// parked counts the waits that were refused a spin, and park.
var parked atomic.Int32

// turn is a wait of a crowd. From join to its end it belongs to the crowd.
type turn struct {
	crowd *crowd // constant
	done  chan Outcome

	src    Shared
	budget time.Duration
	until  time.Time
	ended  time.Time // about when it ended
	next   *turn     // the one that joined before
}

// newTurn returns a turn for the waits at one place.
func newTurn() *turn {
	n := min(uint32(limit()), uint32(len(crowds)))
	return &turn{crowd: &crowds[members.Add(1)%n], done: make(chan Outcome, 1)}
}

// wait polls for what src waits for, up to budget, and returns how it ended.
func (t *turn) wait(src Shared, budget time.Duration) Outcome {
	t.src, t.budget = src, budget
	t.crowd.join(t)
	o := <-t.done
	t.src = nil
	return o
}

// join adds a wait.
func (c *crowd) join(t *turn) {
	for {
		t.next = c.joined.Load()
		if c.joined.CompareAndSwap(t.next, t) {
			break
		}
	}
	if c.polled.CompareAndSwap(false, true) {
		go c.poll()
	}
}

// poll polls for the waits until there are few, and none is left.
func (c *crowd) poll() {
	spinning.Add(1)
	defer spinning.Add(-1)
	c.open.Store(true)
	c.most, c.empty, c.dry, c.now = 0, 0, 0, time.Now()
	for i := 1; ; i++ {
		c.gather()
		if len(c.waits) == 0 && c.over() {
			return
		}
		if i%fewSweeps == 0 {
			c.open.Store(c.most >= fewWaits)
			c.most = 0
		}
		c.sweep(i%sweepsACheck == 0)
		if c.dry%sweepsAYield == 0 {
			runtime.Gosched()
		} else {
			ntb.Pause()
		}
	}
}

// gather takes the waits that have joined.
func (c *crowd) gather() {
	if c.joined.Load() == nil {
		return
	}
	first := len(c.waits)
	for t := c.joined.Swap(nil); t != nil; {
		t.until = c.now.Add(t.budget)
		c.waits = append(c.waits, t)
		t, t.next = t.next, nil
	}
	slices.Reverse(c.waits[first:])
	c.most, c.empty = max(c.most, len(c.waits)), 0
}

// over reports whether poll ends, where there is no wait.
func (c *crowd) over() bool {
	if c.empty++; c.open.Load() && c.empty < emptySweeps {
		return false
	}
	c.open.Store(false)
	// Who joins behind this begins a poll. Who joined before it is seen here.
	c.polled.Store(false)
	return c.joined.Load() == nil || !c.polled.CompareAndSwap(false, true)
}

// sweep looks at each wait once. If check is set, it also ends those with another reason than that
// what they wait for has come.
func (c *crowd) sweep(check bool) {
	if check {
		c.now = time.Now()
	}
	left := c.waits[:0]
	for _, t := range c.waits {
		if o := c.look(t, check); o == None {
			left = append(left, t)
		} else {
			t.ended = c.now
			t.done <- o
		}
	}
	if c.dry++; len(left) < len(c.waits) || len(left) == 0 {
		c.dry = 0
	}
	clear(c.waits[len(left):])
	c.waits = left
}

// look returns how t ends, or None if it goes on.
func (c *crowd) look(t *turn, check bool) Outcome {
	switch {
	case t.src.Ready():
		return Hit
	case check && t.src.Ended():
		return Stopped
	case check && c.now.After(t.until):
		return Missed
	}
	return None
}
