package wait

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/ntbnet/ntbnet/internal/lock"
)

// Row of all: Many, and of quickHit Rates of 32 connections.
const (
	// A Queue opens where manyWaits find no place to spin, and closes when fewer than half as many do: each of a few is served
	// sooner if its peer wakes it.
	manyWaits = 12
	// aTurn is how long a wait may have its turn while others are ready. A change of turns takes as long as some tens of answers.
	// It is also how long a spin lasts at least while the queue is open, since after one that finds nothing all others park.
	aTurn = 500 * time.Microsecond
	// A turn is quick if its hits took no longer than quickHit on average. A caller that takes longer between its waits does work,
	// and other processors could serve others meanwhile.
	quickHit = 4 * time.Microsecond
)

// Queue has readers beyond the limit of spins take turns. Without it, the few that spin have thousands of answers before another
// one has any: the peer has to wake it, and it parks again.
//
// Waits in the queue sleep, and are not armed. Those that spin look after them. One whose turn is over, or that waits for long,
// wakes the first that is ready, and becomes the last itself. The other end of the link finds out by its own polls, and no doorbell
// is rung.
//
// So a wait in the queue depends on one that spins, and on a caller that soon waits again. That is why the queue opens only behind
// a quick turn, and closes when none is. Then those in it park.
//
// All readers of a fabric share a Queue.
type Queue struct {
	open    atomic.Bool  // stored under mu
	without atomic.Int32 // waits without a place to spin: in the queue, or parked

	mu lock.Mutex[lock.Queue]
	// mu guards the following.
	waits  []*ticket
	slow   int         // turns in a row that were not quick
	looked bool        // somebody has looked after the waits since the last check
	timer  *time.Timer // calls check while there are waits; nil before the first
}

// ticket is a place where goroutines wait, one at a time, and may be in a queue. A nil ticket is in none.
type ticket struct {
	// Constant.
	queue    *Queue
	wake     chan struct{} // of capacity 1: a token has the goroutine look again
	accepted bool          // this end of the connection has accepted it

	// The goroutine that waits owns the following.
	began  time.Duration // of its turn, 0 for none
	hits   uint64        // of the Spinner at that time
	parked bool          // for want of a place

	// Queue.mu guards the following.
	src Source  // of the wait under way
	end Outcome // Queued while it is in the queue
}

// Join has the waits take turns with others of q. A token in wake, which has capacity 1, makes a wait look again. Other goroutines
// call Ready of the Sources. Join is called before the first wait.
func (s *Spinner) Join(q *Queue, wake chan struct{}) { s.ticket = &ticket{queue: q, wake: wake} }

// Accepted says that this end of the connection has accepted it, which lets its turns last until the other end follows. It is called
// before the first wait.
func (s *Spinner) Accepted() {
	if s.ticket != nil {
		s.ticket.accepted = true
	}
}

// TakeTurn waits until src is ready or stopped, and it is this wait's turn, after Spin has returned Queued. It returns None if
// the queue closes.
func (s *Spinner) TakeTurn(src Source) Outcome {
	t := s.ticket
	o := t.sleep(src)
	t.began, t.hits = clock(), s.counts.Hits
	switch s.counts.Spins++; o {
	case Hit:
		s.hit()
	case Stopped:
		s.Miss()
	default:
		s.counts.Spins--
		t.parked = true
	}
	return o
}

// Parks is called before a wait parks that Spin has not ended. The function that it returns is called when the wait goes on.
func (s *Spinner) Parks() (unpark func()) {
	t := s.ticket
	if t != nil {
		t.began = 0
	}
	if t == nil || !t.parked {
		return func() {}
	}
	t.queue.without.Add(1)
	return func() {
		t.queue.without.Add(-1)
		t.parked = false
	}
}

// refuse returns what a wait does for which there is no place to spin.
func (t *ticket) refuse() Outcome {
	if t == nil {
		return None
	}
	if t.queue.open.Load() {
		return Queued
	}
	t.parked = true
	return None
}

// turnOver reports whether another wait has the turn now, because this one was over.
func (t *ticket) turnOver(now time.Duration, hits uint64) bool {
	if t == nil || t.began != 0 && now-t.began < aTurn {
		return false
	}
	begins, quick := t.began == 0, now-t.began <= time.Duration(hits-t.hits)*quickHit
	t.began, t.hits = now, hits
	return !begins && t.queue.next(quick)
}

// waitsLong reports whether another wait has the turn now, because this one has taken so long. The end that accepted the connection
// gives its turn away later. So it follows when the other end has changed its turn, and the two do not look for each other at
// the same time.
func (t *ticket) waitsLong(took time.Duration) bool {
	return t != nil && (took >= aWake || !t.accepted) && t.queue.open.Load() && t.queue.scan()
}

// budget returns how long a spin lasts that would else last for d.
func (t *ticket) budget(d time.Duration) time.Duration {
	if t == nil || !t.queue.open.Load() {
		return d
	}
	return max(d, aTurn)
}

// missed is called after a spin that found nothing, not even for a wait in the queue.
func (t *ticket) missed() {
	if t != nil && t.queue.open.Load() {
		t.queue.mu.Lock()
		defer t.queue.mu.Unlock()
		t.queue.close()
	}
}

// sleep waits until src is ready or stopped. It returns None if the queue is closed.
func (t *ticket) sleep(src Source) Outcome {
	if !t.queue.add(t, src) {
		return None
	}
	for {
		stopped := src.Stopped() // not under mu, since it may take other locks
		if end := t.queue.ended(t, stopped); end != Queued {
			return end
		}
		<-t.wake
	}
}

// add makes t the last in the queue. It reports false if that is closed, or as long as a scan may be.
func (q *Queue) add(t *ticket, src Source) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.open.Load() || len(q.waits) >= manyWaits<<few {
		return false
	}
	t.src, t.end = src, Queued
	q.waits = append(q.waits, t)
	q.without.Add(1)
	if len(q.waits) > 1 {
		return true
	}
	q.looked = true
	if q.timer == nil {
		q.timer = time.AfterFunc(2*lostFor, q.check)
	} else {
		q.timer.Reset(2 * lostFor)
	}
	return true
}

// ended returns how the wait of t has ended, or Queued if it goes on: whether its source is ready counts when it has its turn.
func (q *Queue) ended(t *ticket, stopped bool) Outcome {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.end == Queued && stopped {
		q.remove(slices.Index(q.waits, t), Stopped)
	}
	return t.end
}

// remove ends wait i. The caller holds mu.
func (q *Queue) remove(i int, end Outcome) {
	t := q.waits[i]
	q.waits = slices.Delete(q.waits, i, i+1)
	q.without.Add(-1)
	t.src, t.end = nil, end
	select {
	case t.wake <- struct{}{}:
	default: // there is a token, behind which the goroutine locks mu
	}
}

// next is called at the end of a turn, and reports whether another wait has the turn now.
func (q *Queue) next(quick bool) bool {
	if !q.open.Load() && (!quick || q.without.Load() < manyWaits) {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.slow++; quick {
		q.slow = 0
		q.open.Store(true) // a parked wait joins after its peer has woken it
	}
	if q.slow >= few || q.without.Load() < manyWaits/2 {
		q.close()
	}
	return q.pass()
}

// scan reports whether another wait has the turn now.
func (q *Queue) scan() bool {
	if !q.mu.TryLock() {
		return false // another goroutine scans
	}
	defer q.mu.Unlock()
	return q.pass()
}

// pass gives the turn to the first wait that is ready, and reports whether there is one. The caller holds mu.
func (q *Queue) pass() bool {
	q.looked = true
	i := slices.IndexFunc(q.waits, func(t *ticket) bool { return t.src.Ready() })
	if i >= 0 {
		q.remove(i, Hit)
	}
	return i >= 0
}

// close has all waits park. The caller holds mu.
func (q *Queue) close() {
	q.open.Store(false)
	for len(q.waits) > 0 {
		q.remove(len(q.waits)-1, None)
	}
}

// check closes the queue if nobody has looked after its waits lately.
func (q *Queue) check() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.looked {
		q.close()
	}
	q.looked = false
	if len(q.waits) > 0 {
		q.timer.Reset(2 * lostFor)
	}
}
