package limits

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ntbnet/ntbnet/ntb"
)

// A page of a chain's memory belongs to each process. Its offsets, in bytes:
const (
	rightward = 0    // the word for the next process
	stored    = 512  // how many pieces the process has stored for the next one
	leftward  = 1024 // the word for the one before
	taken     = 1536 // how many pieces it has taken from the one before
	asleep    = 2048 // 1 if the process sleeps or is about to; who wakes it stores 0
	yielded   = 3072 // how often the process has called sched_yield
	pageSize  = 4096
)

// Between two processes is a queue of so many pieces, as a lane has slots.
const (
	chainPiece = 64 << 10
	chainSlots = 32
	chainQueue = chainSlots * chainPiece
)

// chainSize returns the size of a chain's memory.
func chainSize(hops int) int { return (hops+1)*pageSize + hops*chainQueue }

// MaxHops is the greatest number of hops of a chain.
const MaxHops = 15

// chainSpin is how long a process of a chain polls and yields before it sleeps.
const chainSpin = 50 * time.Microsecond

// Chain is a chain of processes that pass one word along and back, or pieces of data along, and its
// first process. Each process has memory in common with its neighbours only, and runs ServeChain, but for the first.
// One goroutine uses a Chain at a time. Only Stop may be called by another one.
type Chain struct {
	member
	mu     sync.Mutex
	closed bool // the memory is unmapped; guarded by mu
}

// NewChain makes a chain of so many hops, which has one process more. The others get the file.
// The caller closes both.
func NewChain(hops int) (*Chain, *os.File, error) {
	if hops < 1 || hops > MaxHops {
		return nil, nil, fmt.Errorf("a chain of %d hops: use 1 to %d", hops, MaxHops)
	}
	b, f, err := newShared(chainSize(hops))
	if err != nil {
		return nil, nil, err
	}
	return &Chain{member: newMember(b, hops, 0)}, f, nil
}

// Stop ends a measurement that is under way, and all later ones, with an error.
func (c *Chain) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.member.end()
	}
}

// Close unmaps the memory. No measurement may be under way.
func (c *Chain) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	return unmap(c.b)
}

// Yields returns how often the processes between the first and the last one have called sched_yield.
func (c *Chain) Yields() (sum uint64) {
	for i := 1; i < c.last; i++ {
		sum += ntb.Load64(c.b, i*pageSize+yielded)
	}
	return sum
}

// maxBatch is how many words go along and back between two readings of the clock at most.
const maxBatch = 16

// RoundTrips passes words along the chain and back, one after the other, for a sixth of d to
// warm up and then for d. It returns the microseconds of one, and how many there were in all.
func (c *Chain) RoundTrips(d time.Duration) (us float64, all int, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	warm, _, ok := c.stretch(d / 6)
	if !ok {
		return 0, 0, errStopped
	}
	timed, took, ok := c.stretch(d)
	if !ok {
		return 0, 0, errStopped
	}
	return float64(took) / float64(timed) / 1e3, warm + timed, nil
}

// stretch makes round trips for d. It returns false if it was stopped first.
func (c *Chain) stretch(d time.Duration) (done int, took time.Duration, ok bool) {
	start := time.Now()
	for batch := 1; took < d; batch = min(2*batch, maxBatch) {
		for range batch {
			c.send(rightward, c.fromRight+1, 1)
			if !c.await() {
				return 0, 0, false
			}
		}
		done += batch
		took = time.Since(start)
	}
	return done, took, true
}

// Stream sends pieces of 64 KiB along the chain, from memory of the first process to memory of the
// last one, for a sixth of d to warm up and then for d. Each process between them copies from queue
// to queue. It returns the GB/s (10^9 bytes) that arrived, and how many pieces were sent in all.
func (c *Chain) Stream(d time.Duration) (gbs float64, all int, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := c.stored
	c.streams = true
	_, warm := c.arrive(d / 6)
	arrived, timed := c.arrive(d)
	c.streams = false
	for warm && timed && c.there() != c.stored {
		yield()
		runtime.Gosched() // where there is one processor, Stop may need it
		timed = !c.stop.Load()
	}
	if !warm || !timed {
		return 0, 0, errStopped
	}
	return arrived, int(c.stored - before), nil
}

// arrive sends pieces for d, or until one arrives, and returns the GB/s that arrived. It returns false
// if it was stopped first.
func (c *Chain) arrive(d time.Duration) (gbs float64, ok bool) {
	start, before := time.Now(), c.there()
	for {
		for range maxBatch {
			if !c.await() {
				return 0, false
			}
		}
		if c.stop.Load() {
			return 0, false
		}
		if took, arrived := time.Since(start), c.there()-before; took >= d && arrived > 0 {
			return float64(arrived) * chainPiece / float64(took), true
		}
	}
}

// there returns how many pieces the last process has taken.
func (c *Chain) there() uint64 { return ntb.Load64(c.b, c.last*pageSize+taken) }

// ServeChain is the part of process number index of a chain, 1 to hops. It passes words on until
// end has come to its end, and then returns. Nothing is written to end.
func ServeChain(f *os.File, hops, index int, end io.Reader) error {
	if hops > MaxHops || index < 1 || index > hops {
		return fmt.Errorf("process %d of a chain of %d hops", index, hops)
	}
	b, err := openShared(f, chainSize(hops))
	if err != nil {
		return err
	}
	p := newMember(b, hops, index)
	ended := make(chan error)
	go func() {
		_, err := io.Copy(io.Discard, end)
		p.end()
		ended <- err
	}()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for p.await() {
	}
	return errors.Join(<-ended, unmap(b))
}

// member is one process of a chain.
type member struct {
	b           []byte
	out         ntb.Window // the same bytes, for stores
	index, last int        // its number, and that of the last one

	fromLeft, fromRight uint64 // the words that were passed on last
	yields              uint64 // calls of sched_yield

	streams       bool   // pieces are carried; always but for the first process
	stored, taken uint64 // pieces, as in the page
	bulk          ntb.Bulk
	private       []byte // a piece, at the ends of the chain

	stop *atomic.Bool // set by another goroutine
}

func newMember(b []byte, hops, index int) member {
	return member{
		b: b, out: ntb.MappedWindow(b, ntb.Cacheable), index: index, last: hops, streams: index > 0,
		private: ntb.AlignedBytes(chainPiece), stop: new(atomic.Bool),
	}
}

// end has await return false.
func (p *member) end() {
	p.stop.Store(true)
	p.wake(p.index)
}

// send stores a word for a neighbour, and wakes it if it sleeps. It pairs with sleep: either this
// side sees that the neighbour sleeps, or the neighbour the word.
func (p *member) send(off int, v uint64, to int) {
	p.out.Publish64(p.index*pageSize+off, v)
	p.tell(to)
}

// tell wakes a neighbour for which a word was stored, if it sleeps.
func (p *member) tell(to int) {
	ntb.Fence()
	if ntb.Load32(p.b, to*pageSize+asleep) != 0 {
		p.wake(to)
	}
}

func (p *member) wake(index int) {
	p.out.Publish32(index*pageSize+asleep, 0)
	futexWake(p.b, index*pageSize+asleep)
}

// arrived returns the words that the neighbours have stored last.
func (p *member) arrived() (fromLeft, fromRight uint64) {
	fromLeft, fromRight = p.fromLeft, p.fromRight
	if p.index > 0 {
		fromLeft = ntb.Load64(p.b, (p.index-1)*pageSize+rightward)
	}
	if p.index < p.last {
		fromRight = ntb.Load64(p.b, (p.index+1)*pageSize+leftward)
	}
	return fromLeft, fromRight
}

// pass passes on the words that have come, and reports whether there were any. The last process
// sends them back, and the first one keeps them.
func (p *member) pass() bool {
	fromLeft, fromRight := p.arrived()
	if fromLeft == p.fromLeft && fromRight == p.fromRight {
		return false
	}
	if fromLeft != p.fromLeft {
		p.fromLeft = fromLeft
		if p.index < p.last {
			p.send(rightward, fromLeft, p.index+1)
		} else {
			p.send(leftward, fromLeft, p.index-1)
		}
	}
	if fromRight != p.fromRight {
		p.fromRight = fromRight
		if p.index > 0 {
			p.send(leftward, fromRight, p.index-1)
		}
	}
	return true
}

// slotAt returns where a piece is that process index stores for the next one.
func (p *member) slotAt(index int, piece uint64) int {
	return (p.last+1)*pageSize + index*chainQueue + int(piece%chainSlots)*chainPiece
}

// carries reports whether there is a piece to carry, and room for it.
func (p *member) carries() bool {
	return p.streams &&
		(p.index == 0 || ntb.Load64(p.b, (p.index-1)*pageSize+stored) != p.taken) &&
		(p.index == p.last || p.stored-ntb.Load64(p.b, (p.index+1)*pageSize+taken) < chainSlots)
}

// carry copies a piece from the process before to the next one, if it can. It reports whether it did.
func (p *member) carry() bool {
	if !p.carries() {
		return false
	}
	from := p.private
	if p.index > 0 {
		at := p.slotAt(p.index-1, p.taken)
		from = p.b[at : at+chainPiece]
	}
	if p.index < p.last {
		p.bulk.Write(&p.out, p.slotAt(p.index, p.stored), from)
		p.stored++
		p.send(stored, p.stored, p.index+1)
	} else {
		copy(p.private, from)
	}
	if p.index > 0 {
		p.taken++
		p.send(taken, p.taken, p.index-1)
	}
	return true
}

// await passes on the next words or the next piece. It polls, and yields after each poll; then it sleeps.
// It returns false if it was stopped first.
func (p *member) await() bool {
	for {
		for start, n := time.Now(), 0; n&7 != 7 || time.Since(start) < chainSpin; n++ {
			if p.pass() || p.carry() {
				return true
			}
			if p.stop.Load() {
				return false
			}
			yield()
			p.yields++
			p.out.Publish64(p.index*pageSize+yielded, p.yields)
		}
		p.sleep()
	}
}

// sleep returns when there is something to do, or end was called, or for no reason.
func (p *member) sleep() {
	at := p.index*pageSize + asleep
	p.out.Publish32(at, 1)
	ntb.Fence() // pairs with the one of send
	fromLeft, fromRight := p.arrived()
	if fromLeft == p.fromLeft && fromRight == p.fromRight && !p.carries() && !p.stop.Load() {
		futexWait(p.b, at, 1)
	}
	p.out.Publish32(at, 0)
}
