package bounce

import (
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/internal/wait"
	"github.com/ntbnet/ntbnet/ntb"
)

// Errors of this package, besides io.EOF, os.ErrDeadlineExceeded and errno
// values.
var (
	// ErrClosed reports that this side closed the connection.
	ErrClosed = errors.New("bounce: connection closed")
	// ErrBadGrant reports that the peer named memory that it may not name.
	ErrBadGrant = errors.New("bounce: bad grant")
)

// DefaultBuffer is how large the queue of one direction may grow by default, in
// bytes.
const DefaultBuffer = 8 << 20

// DefaultSpin is how long a wait polls before it parks by default. It is several times
// what parking and being woken takes. So it also covers the short stops that the system
// makes of the side that answers. Each one that it does not cover costs both sides a park
// and a doorbell.
const DefaultSpin = wait.Usual

// Options configures a pool.
type Options struct {
	// Spin is how long a wait polls before it parks. 0 parks at once, and less than
	// 0 means DefaultSpin.
	Spin time.Duration
	// Buffer is how large the queue of one direction may grow, 4 KiB to 16 MiB. 0
	// means DefaultBuffer.
	Buffer int
	// Queue is shared by the pools of a fabric. Nil means one of this pool's own.
	Queue *wait.Queue

	// DMAThreshold is the size in bytes from which on payload goes through the
	// bridge's DMA engine, if it has one. 0 means to measure it when the link comes
	// up, which may find that the engine never pays.
	DMAThreshold int

	// Quota limits the connections that the peer opens, which Accept makes. Nil is no limit.
	Quota *Quota

	until func(time.Time) time.Duration // for tests: time.Until, with another clock
}

// Pool is the memory here that one peer may write, divided among the connections
// with it.
type Pool struct {
	peer *link.Peer // immutable
	opts Options    // immutable

	crossover crossover // constant after NewPool

	mu          lock.Mutex[lock.Pool]
	blocks      *blocks            // guarded by mu
	pairs       map[*Pair]struct{} // pairs that hold memory; guarded by mu
	madeRoom    time.Time          // when makeRoom last looked; guarded by mu
	retained    int                // freed memory of small queues that was not returned to the system; guarded by mu
	warm        warm               // that of large ones; guarded by mu
	recent      recent             // what connections used; guarded by mu
	coolEvery   time.Duration      // tests make it shorter before they begin
	shrinker    *time.Timer        // calls shrink; guarded by mu
	shrinking   bool               // shrinker is set; guarded by mu
	shrinkEvery time.Duration      // tests make it shorter before they begin
	gen         uint32             // of the last pair that was made; guarded by mu
	down        bool               // guarded by mu
	closed      Stats              // of the pairs that are gone; guarded by mu
}

// NewPool returns the pool of a peer's local region.
func NewPool(p *link.Peer, o Options) *Pool {
	if o.Buffer == 0 {
		o.Buffer = DefaultBuffer
	}
	if o.Spin < 0 {
		o.Spin = DefaultSpin
	}
	if o.Queue == nil {
		o.Queue = new(wait.Queue)
	}
	if o.until == nil {
		o.until = time.Until
	}
	pool := &Pool{
		peer:   p,
		opts:   o,
		blocks: newBlocks(controlSize*p.Slots(), scratchOf(len(p.Local()))),
		pairs:  map[*Pair]struct{}{},

		crossover:   newCrossover(p, o.DMAThreshold),
		shrinkEvery: shrinkEvery, coolEvery: coolEvery,
	}
	pool.warm = newWarm(pool.blocks.total)
	return pool
}

// Peer returns the peer that may write the pool.
func (p *Pool) Peer() *link.Peer { return p.peer }

// fairShare returns how large a queue may grow: half of the memory, divided among the connections. Queues
// smaller than a piece may have all that mayGrow allows. The caller holds p.mu.
func (p *Pool) fairShare() int {
	n := len(p.pairs)
	if n <= 1 {
		return p.blocks.total
	}
	return max(p.blocks.total/2/n, min(p.blocks.total/4*3/n, maxPiece))
}

// roomEvery is how often at most a connection is chosen that gives way. It takes a look at each.
const roomEvery = time.Millisecond

// makeRoom has the connection with the largest queue move to a smaller one, if it has more than its
// share. It began when there were fewer connections, and another one finds no room now.
func (p *Pool) makeRoom() {
	p.mu.Lock()
	now := time.Now()
	if p.down || now.Sub(p.madeRoom) < roomEvery {
		p.mu.Unlock()
		return
	}
	p.madeRoom = now
	share := p.fairShare()
	most, largest := int64(share), (*Pair)(nil)
	for c := range p.pairs {
		if n := c.r.granter.latest.Load(); n > most && c.linked.Load() { // a queue of one that is not has no writer yet
			most, largest = n, c
		}
	}
	p.mu.Unlock()
	if largest != nil {
		largest.r.granter.giveWay(max(minQueue, 1<<(bits.Len(uint(share))-1)))
	}
}

// mayGrow reports whether a connection that has a queue of old bytes may have one of size bytes: no
// more than a fair share, and a quarter of the memory is left for new connections. If it is the only
// one, it is enough that the quarter is left when the old queue is free. The caller holds p.mu.
func (p *Pool) mayGrow(size, old int) bool {
	used := p.blocks.used + size
	if len(p.pairs) <= 1 {
		used -= old
	}
	return size <= p.fairShare() && used <= p.blocks.total/4*3
}

// alloc allocates a queue of size bytes and clears its first header. old is the size of the queue that a
// connection grows out of, see mayGrow, or 0. A queue larger than bulkQueue is
// given only while all queues together stay within bulkShare.
func (p *Pool) alloc(size, old int) (queue, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down {
		return queue{}, false // the memory may be gone
	}
	if old > 0 && !p.mayGrow(size, old) || size > bulkQueue && p.blocks.used+size > bulkShare(p.blocks.total) {
		return queue{}, false
	}
	off, ok := p.blocks.alloc(size)
	if !ok {
		return queue{}, false
	}
	if old > 0 {
		p.growing()
	}
	return p.take(off, size), true
}

// take has a block that was allocated be a queue. The caller holds p.mu.
func (p *Pool) take(off, size int) queue {
	if size < bigBlock {
		p.retained = max(0, p.retained-size)
	}
	p.warm.take(off-p.blocks.base, size)
	q := queue{off: off, mem: p.peer.Local()[off : off+size : off+size]}
	ntb.Clear64(q.mem, 0)
	return q
}

// How much freed memory of small queues is kept for the next connection rather than returned to the
// system, and the smallest block of which that is said by warm.
const (
	maxRetained = 1 << 20
	bigBlock    = 64 << 10
	page        = 4 << 10
)

// release frees a queue that the peer does not write any more.
func (p *Pool) release(q queue) {
	if q.mem == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	free := p.blocks.release(q.off, len(q.mem))
	p.cooling()
	switch {
	case len(q.mem) < bigBlock && p.retained < maxRetained:
		p.retained += len(q.mem)
	case len(q.mem) >= bigBlock && p.warm.put(q.off-p.blocks.base, len(q.mem)):
	case free >= page:
		p.peer.Reclaim(q.off&^(page-1), max(len(q.mem), page))
	}
}

// queue is a block of the pool.
type queue struct {
	off int
	mem []byte // nil for none
}

// Down must be called when the link is down. Data that arrived can still be read.
func (p *Pool) Down() {
	p.mu.Lock()
	p.down = true
	if p.shrinker != nil {
		p.shrinker.Stop()
	}
	if p.warm.timer != nil {
		p.warm.timer.Stop()
	}
	pairs := p.all()
	p.mu.Unlock()
	for _, c := range pairs {
		c.linkDown()
	}
}

// all returns the pairs that hold memory. The caller holds p.mu.
func (p *Pool) all() []*Pair { return slices.Collect(maps.Keys(p.pairs)) }

// Stats returns the sums of the counters of all connections, including those that
// are gone, and how many hold memory.
func (p *Pool) Stats() (Stats, int) {
	p.mu.Lock()
	sum := p.closed
	pairs := p.all()
	p.mu.Unlock()
	for _, c := range pairs {
		sum.Add(c.Stats())
	}
	return sum, len(pairs)
}

// Used is what connections hold of a pool.
type Used struct {
	Pairs int // endpoints of connections
	Slots int // of the peer; each endpoint has one
	Bytes int // in queues

	// Memory of queues that have ended, which is kept for the next ones, and how much that may be.
	Warm, MaxWarm int
}

// Used returns what connections hold now. All is 0 when both sides of each are
// closed and know it.
func (p *Pool) Used() Used {
	slots := p.peer.Attached()
	p.mu.Lock()
	defer p.mu.Unlock()
	u := Used{Pairs: len(p.pairs), Slots: slots, Bytes: p.blocks.used}
	if !p.down && p.peer.Caps().Reclaims {
		u.Warm, u.MaxWarm = p.warm.bytes+p.retained, maxWarm+maxRetained
	}
	return u
}

// Endpoint is what one side of a connection sends to the other: where its control
// block and its first queue are.
type Endpoint struct {
	Slot   uint32 // of its control block
	Gen    uint32 // of the slot; distinguishes one user of the slot from the next
	Offset uint64 // of its queue in its region, a multiple of 2048
	Size   uint32 // of its queue: a power of two, 2 KiB to 16 MiB
}

// Hold keeps the peer's memory, as the peer's method does, and returns true, unless
// the link is down. The caller releases the peer.
func (p *Pool) Hold() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.down {
		p.peer.Hold()
	}
	return !p.down
}

// errFull returns ENOBUFS with the reason.
func errFull(what string) error {
	return fmt.Errorf("window full: no free %s: %w", what, syscall.ENOBUFS)
}

// NewPair makes this side's endpoint of a connection. It is not usable before
// Connect. The error wraps ENOBUFS if the window is full, and ECONNRESET if the
// link is down.
func (p *Pool) NewPair() (*Pair, error) {
	q, ok := p.first()
	if !ok && !p.Hold() {
		return nil, fmt.Errorf("link down: %w", syscall.ECONNRESET)
	} else if !ok {
		p.peer.Release()
		return nil, errFull("bounce buffer")
	}
	c := newPair(p, q)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down {
		return nil, fmt.Errorf("link down: %w", syscall.ECONNRESET)
	}
	slot, err := p.peer.Attach(c)
	if err != nil {
		p.blocks.release(q.off, len(q.mem))
		return nil, errFull("connection slot")
	}
	p.gen++
	c.gen = p.gen
	c.control.slot = slot
	c.control.here = p.peer.Local()[controlSize*slot:][:controlSize:controlSize]
	for off := 0; off < controlSize; off += 8 {
		ntb.Clear64(c.control.here, off)
	}
	p.pairs[c] = struct{}{}
	p.peer.Hold()
	return c, nil
}

// Accept is NewPair for a connection that the peer opens. The error wraps ErrQuota if the peer's
// user has too many.
func (p *Pool) Accept() (*Pair, error) {
	if !p.opts.Quota.take() {
		return nil, ErrQuota
	}
	c, err := p.NewPair()
	if err != nil {
		p.opts.Quota.give()
		return nil, err
	}
	c.quota = p.opts.Quota
	c.r.waiter.spinner.Accepted()
	return c, nil
}

// Discard frees a pair that was never connected. The peer does not know of it, or
// has promised that it never stores to it.
func (p *Pool) Discard(c *Pair) { p.remove(c) }

// remove frees all that a pair holds. The peer has stopped writing.
func (p *Pool) remove(c *Pair) {
	stats := c.Stats() // it takes the pair's locks, whose holders may want ours
	p.mu.Lock()
	if _, ok := p.pairs[c]; !ok {
		p.mu.Unlock()
		return
	}
	delete(p.pairs, c)
	p.closed.Add(stats)
	p.recent.ended(int(c.r.granter.latest.Load()), stats.BytesRead)
	p.mu.Unlock()

	c.w.tx.dma.release()
	p.release(c.r.rx.queue)
	for !c.r.rx.granted.none() {
		p.release(c.r.rx.granted.take())
	}
	p.peer.Detach(c.control.slot)
	c.quota.give()
	p.peer.Release()
}

// SpinUntil polls done, and what the peer announces, for as long as a dial may
// spin, if at all. It reports whether done returned true.
func (p *Pool) SpinUntil(done func() bool) bool {
	s := p.Spinner()
	return p.Spin(&s, done)
}

// Spinner returns a Spinner with the pool's options, for Spin.
func (p *Pool) Spinner() wait.Spinner { return wait.NewSpinner(p.spins()) }

// spins says how set-up waits. It polls longer than a Read, as the other process may have to be woken for an answer, or for the
// next dial.
func (p *Pool) spins() wait.Config {
	return wait.Config{Budget: wait.ManyTimes * p.opts.Spin, Remote: p.peer.Caps().RemoteCPU, Thread: onThreads}
}

// Spin is SpinUntil for the waits of one kind. s remembers how they ended, and decides
// whether to poll at all.
func (p *Pool) Spin(s *wait.Spinner, done func() bool) bool {
	return s.Poll(func() bool { p.peer.Poll(); return done() })
}
