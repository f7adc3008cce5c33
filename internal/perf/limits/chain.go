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
	leftward  = 1024 // the word for the one before
	asleep    = 2048 // 1 if the process sleeps or is about to; who wakes it stores 0
	yielded   = 3072 // how often the process has called sched_yield
	pageSize  = 4096
)

// MaxHops is the greatest number of hops of a chain.
const MaxHops = 15

// chainSpin is how long a process of a chain polls and yields before it sleeps.
const chainSpin = 50 * time.Microsecond

// Chain is a chain of processes that pass one word along and back, and its first process. Each
// process has memory in common with its neighbours only, and runs ServeChain, but for the first.
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
	b, f, err := newShared((hops + 1) * pageSize)
	if err != nil {
		return nil, nil, err
	}
	return &Chain{member: newMember(b, 0)}, f, nil
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

// ServeChain is the part of process number index of a chain, 1 to hops. It passes words on until
// end has come to its end, and then returns. Nothing is written to end.
func ServeChain(f *os.File, hops, index int, end io.Reader) error {
	if hops > MaxHops || index < 1 || index > hops {
		return fmt.Errorf("process %d of a chain of %d hops", index, hops)
	}
	b, err := openShared(f, (hops+1)*pageSize)
	if err != nil {
		return err
	}
	p := newMember(b, index)
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

	stop *atomic.Bool // set by another goroutine
}

func newMember(b []byte, index int) member {
	return member{
		b: b, out: ntb.MappedWindow(b, ntb.Cacheable), index: index, last: len(b)/pageSize - 1, stop: new(atomic.Bool),
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

// await passes on the next words that come. It polls, and yields after each poll; then it sleeps.
// It returns false if it was stopped first.
func (p *member) await() bool {
	for {
		for start, n := time.Now(), 0; n&7 != 7 || time.Since(start) < chainSpin; n++ {
			if p.pass() {
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

// sleep returns when a word has come, or end was called, or for no reason.
func (p *member) sleep() {
	at := p.index*pageSize + asleep
	p.out.Publish32(at, 1)
	ntb.Fence() // pairs with the one of send
	if fromLeft, fromRight := p.arrived(); fromLeft == p.fromLeft && fromRight == p.fromRight && !p.stop.Load() {
		futexWait(p.b, at, 1)
	}
	p.out.Publish32(at, 0)
}
