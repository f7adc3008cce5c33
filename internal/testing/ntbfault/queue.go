package ntbfault

import (
	"bytes"
	"container/heap"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/ntbnet/ntbnet/ntb"
)

const (
	// entryBytes is the cost of an entry of the queue besides its payload.
	entryBytes = 64
	// spinBelow is the longest wait that yields the processor rather than using a
	// timer. A timer of that length would be several times too late.
	spinBelow = 20 * time.Microsecond
	// spinTurns ends the yielding where time stands still, as in a bubble of
	// testing/synctest.
	spinTurns = 1000
	// maxBatch is how many entries are applied without taking the lock in between.
	maxBatch = 64
	// maxPending is the number of delayed doorbells from which on those of one bit
	// are merged.
	maxPending = 4096
)

type kind uint8

const (
	store   kind = iota
	publish      // a store of width bytes
	spad
	doorbell
)

// entry is one store or doorbell that a side sent.
type entry struct {
	due   time.Time // earliest time of arrival
	kind  kind
	width int
	off   int // offset, scratchpad or doorbell bit
	v     uint64
	p     []byte // owned by the entry
	bell  bell   // for a doorbell
}

// bell is what happens to a doorbell when its turn comes.
type bell struct {
	delay, repeat time.Duration // repeat counts from the first ring; 0 for none
}

// ring is a delayed doorbell.
type ring struct {
	due time.Time
	bit int
}

// States of a queue. They only grow.
type state uint8

const (
	open      state = iota
	finishing       // takes nothing more, and ends when it is empty
	down            // has dropped everything, and ends
)

// queue is one direction of the bridge. It implements ntb.BasicSink. Its goroutine takes
// the entries when they are due and passes them to the inner device.
type queue struct {
	dev     ntb.Device // inner device of the side that sends; immutable
	out     ntb.Window // immutable; owned by the queue's goroutine
	options Options    // immutable
	validAt time.Time  // when the peer's windows are set up; immutable
	wake    chan struct{}
	ended   chan struct{} // closed when the goroutine has ended

	mu      sync.Mutex
	changed sync.Cond // with mu; signalled when applied, bytes or state changes

	// Guarded by mu.
	state    state
	rng      *rand.Rand
	entries  []entry // in order; due never decreases
	bytes    int     // of the entries that are not applied
	lastDue  time.Time
	queued   uint64    // number of entries ever queued
	applied  uint64    // of those, how many are applied: the first ones
	asleepTo time.Time // when the goroutine wakes by itself; zero while it is awake
	stats    Stats

	lastStore uint64   // number of the last entry that is not a doorbell
	lastBell  []uint64 // for each bit, number of its last entry
	rings     rings    // delayed doorbells
	pending   []int    // for each bit, how many of rings
}

// never is when an idle goroutine wakes by itself.
var never = time.Unix(1<<40, 0)

func newQueue(dev ntb.Device, o Options, direction uint64) *queue {
	bits := dev.Caps().Doorbells
	q := &queue{
		dev: dev, out: dev.Outbound(), options: o,
		wake: make(chan struct{}, 1), ended: make(chan struct{}),
		rng:      rand.New(rand.NewPCG(o.Seed, direction)),
		lastBell: make([]uint64, bits), pending: make([]int, bits),
	}
	// It is a generator of its own, so that other choices do not depend on this
	// one.
	f := rand.New(rand.NewPCG(o.Seed, 16+direction)).Float64()
	q.validAt = time.Now().Add(time.Duration(f * float64(o.InvalidMax)))
	q.changed.L = &q.mu
	go q.run()
	return q
}

// upTo chooses a time from 0 to d, both included. It always uses the generator
// once, so that later choices do not depend on the options of other kinds.
func (q *queue) upTo(d time.Duration) time.Duration {
	f := q.rng.Float64()
	return min(d, time.Duration(f*float64(d+1)))
}

// invalid reports whether the windows of the side that receives are not set up yet.
func (q *queue) invalid() bool { return q.options.InvalidMax > 0 && time.Now().Before(q.validAt) }

// Store implements ntb.BasicSink.
func (q *queue) Store(off int, p []byte) {
	if len(p) > 0 {
		q.push(entry{kind: store, off: off, p: bytes.Clone(p)})
	}
}

// Publish implements ntb.BasicSink.
func (q *queue) Publish(off int, v uint64, width int) {
	q.push(entry{kind: publish, off: off, v: v, width: width})
}

// push queues an entry that is not a doorbell. It waits for room. An entry that is
// longer than the whole queue waits until the queue is empty.
func (q *queue) push(e entry) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.state == open && q.bytes > 0 && q.bytes+entryBytes+len(e.p) > q.options.QueueBytes {
		q.changed.Wait()
	}
	if q.state != open {
		return
	}
	if q.invalid() {
		q.stats.StoresVanished++
		return
	}
	q.stats.StoresDelayed++
	q.append(e)
	q.lastStore = q.queued
}

// append sets the time of e and queues it. The caller holds mu.
func (q *queue) append(e entry) {
	o := q.options
	e.due = time.Now().Add(o.StoreDelayMin + q.upTo(o.StoreDelayMax-o.StoreDelayMin))
	if e.due.Before(q.lastDue) {
		e.due = q.lastDue
	}
	q.lastDue = e.due
	q.entries = append(q.entries, e)
	q.bytes += entryBytes + len(e.p)
	q.queued++
	q.wakeFor(e.due)
}

// ring decides what happens to a doorbell. It never waits, since even a full queue
// takes one doorbell of each bit.
func (q *queue) ring(bit int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.state != open || q.invalid() {
		return
	}
	o := q.options
	// The generator is used the same number of times, whatever the outcome.
	drop := q.rng.Float64() < o.DropDoorbell
	repeat := q.rng.Float64() < o.RepeatDoorbell
	b := bell{delay: q.upTo(o.DoorbellDelayMax)}
	later := o.DoorbellDelayMax
	if later == 0 {
		later = defaultRepeat
	}
	if again := 1 + q.upTo(later-1); repeat {
		b.repeat = again
	}

	q.stats.DoorbellsRung++
	if drop {
		q.stats.DoorbellsDropped++
		return
	}
	if repeat {
		q.stats.DoorbellsRepeated++
	}
	if b.delay > 0 {
		q.stats.DoorbellsDelayed++
	}
	switch {
	case !o.delaysStores():
		if b.delay == 0 {
			q.dev.RingDoorbell(bit)
		}
		q.putOff(bit, b)
	case q.bytes >= o.QueueBytes && q.lastBell[bit] > max(q.lastStore, q.taken()):
		// The last one is not rung yet, and comes after all stores before this
		// call. So it can stand for this ring too.
		q.stats.DoorbellsMerged++
	default:
		q.append(entry{kind: doorbell, off: bit, bell: b})
		q.lastBell[bit] = q.queued
	}
}

// taken returns the number of entries that the goroutine has begun to apply. The
// caller holds mu.
func (q *queue) taken() uint64 { return q.queued - uint64(len(q.entries)) }

// putOff schedules the rings of b that are in the future. The caller holds mu.
func (q *queue) putOff(bit int, b bell) {
	now := time.Now()
	for i, delay := range [2]time.Duration{b.delay, b.delay + b.repeat} {
		if delay == 0 || i == 1 && b.repeat == 0 {
			continue
		}
		if len(q.rings) >= maxPending && q.pending[bit] > 0 {
			q.stats.DoorbellsMerged++
			continue
		}
		due := now.Add(delay)
		heap.Push(&q.rings, ring{due, bit})
		q.pending[bit]++
		q.wakeFor(due)
	}
}

// wakeFor wakes the goroutine if it would sleep beyond due. The caller holds mu.
func (q *queue) wakeFor(due time.Time) {
	if due.Before(q.asleepTo) {
		q.asleepTo = time.Time{}
		select {
		case q.wake <- struct{}{}:
		default:
		}
	}
}

// drain waits until all that is queued at the call has been applied.
func (q *queue) drain() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for n := q.queued; q.applied < n && q.state != down; {
		q.changed.Wait()
	}
}

// finish refuses further entries, and returns when all that was queued is applied.
func (q *queue) finish() { q.end(finishing) }

// cut drops everything. On return nothing is being applied any more.
func (q *queue) cut() { q.end(down) }

func (q *queue) end(s state) {
	q.mu.Lock()
	q.state = max(q.state, s)
	if q.state == down {
		q.entries, q.rings = nil, nil
	}
	q.changed.Broadcast()
	q.wakeFor(time.Time{}.Add(1))
	q.mu.Unlock()
	<-q.ended
}

// run is the queue's goroutine.
func (q *queue) run() {
	defer close(q.ended)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var batch []entry
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.state != down {
		now := time.Now()
		if len(q.rings) > 0 && !q.rings[0].due.After(now) {
			bit := heap.Pop(&q.rings).(ring).bit
			q.pending[bit]--
			// RingDoorbell does not block, so the lock may be held.
			q.dev.RingDoorbell(bit)
			continue
		}
		batch = q.takeDue(batch[:0], now)
		if len(batch) > 0 {
			q.mu.Unlock()
			size := q.apply(batch)
			q.mu.Lock()
			q.applied += uint64(len(batch))
			q.bytes -= size
			for _, e := range batch {
				if e.kind == doorbell {
					q.putOff(e.off, e.bell)
				}
			}
			q.changed.Broadcast()
			continue
		}
		if q.state == finishing && len(q.entries) == 0 {
			return // delayed doorbells go down with the link
		}
		q.sleep(timer, now)
	}
}

// takeDue moves the entries that are due to batch. The caller holds mu.
func (q *queue) takeDue(batch []entry, now time.Time) []entry {
	n := 0
	for n < min(len(q.entries), maxBatch) && !q.entries[n].due.After(now) {
		n++
	}
	batch = append(batch, q.entries[:n]...)
	clear(q.entries[:n]) // batch owns the payload
	q.entries = q.entries[n:]
	return batch
}

// apply passes entries to the inner device, and returns how much room they took in
// the queue.
func (q *queue) apply(batch []entry) (size int) {
	for _, e := range batch {
		size += entryBytes + len(e.p)
		switch e.kind {
		case store:
			q.out.Write(e.off, e.p)
		case publish:
			if e.width == 4 {
				q.out.Publish32(e.off, uint32(e.v))
			} else {
				q.out.Publish64(e.off, e.v)
			}
		case spad:
			q.dev.SetPeerSpad(e.off, uint32(e.v))
		case doorbell:
			if e.bell.delay == 0 {
				q.dev.RingDoorbell(e.off)
			}
		}
	}
	return size
}

// sleep waits until an entry or doorbell is due, one was queued that is due
// earlier, or the state has changed. It may return earlier. The caller holds mu,
// which is released meanwhile.
func (q *queue) sleep(timer *time.Timer, now time.Time) {
	due := never
	if len(q.entries) > 0 {
		due = q.entries[0].due
	}
	if len(q.rings) > 0 && q.rings[0].due.Before(due) {
		due = q.rings[0].due
	}
	rest := due.Sub(now)
	if rest <= spinBelow {
		q.mu.Unlock()
		for range spinTurns {
			runtime.Gosched()
			if rest = time.Until(due); rest <= 0 {
				break
			}
		}
		time.Sleep(rest)
		q.mu.Lock()
		return
	}
	q.asleepTo = due
	q.mu.Unlock()
	if due == never {
		<-q.wake
	} else {
		timer.Reset(rest)
		select {
		case <-q.wake:
		case <-timer.C:
		}
	}
	q.mu.Lock()
	q.asleepTo = time.Time{}
}

// rings is a heap, with the earliest first.
type rings []ring

func (r rings) Len() int           { return len(r) }
func (r rings) Less(i, j int) bool { return r[i].due.Before(r[j].due) }
func (r rings) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }
func (r *rings) Push(x any)        { *r = append(*r, x.(ring)) }

func (r *rings) Pop() any {
	old := *r
	last := old[len(old)-1]
	*r = old[:len(old)-1]
	return last
}
