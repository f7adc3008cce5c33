package shmem

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ntbnet/ntbnet/internal/fabric"
	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/internal/membarrier"
	"github.com/ntbnet/ntbnet/sdp"
)

// World is one PE's part in a job. Its methods, and the functions of this package
// that take it or what was made from it, may be called from any goroutine, but
// collective ones by all PEs in the same order, one at a time.
type World struct {
	// Immutable once open.
	opts    options
	pe      int
	peers   []*peer // by PE
	self    *peer
	heap    *heap
	team    *Team
	near    *Team      // see SharedTeam
	sharers [][]uint64 // see share
	ctx     *Ctx
	host    *sdp.Host // nil if this is the only PE
	ln      net.Listener
	token   uint64 // names this PE's heap, see heapFile
	// barrier makes the processors of all PEs that map each other pass a barrier.
	barrier func() error
	place   place   // where this PE runs
	places  []place // where each does; element by element written by connect
	// crowded: PEs have to take turns at this one's processors, or their servers need
	// some too. Set when all have joined.
	crowded bool
	spec    *fabric.Spec // nil if this is the only PE
	// closeLimit is how long Close waits for others to say that they are done, after
	// the barrier.
	closeLimit time.Duration

	sleepers sleepers
	offers   offers
	turns    turns
	failed   chan struct{} // closed with the first failure
	wg       sync.WaitGroup

	mu      lock.Mutex[lock.World]
	joined  map[int]bool // PEs whose requests are served; guarded by mu
	arrived chan struct{}
	misfit  error             // of the first PE of the job that did not fit; guarded by mu
	giveUp  func()            // ends joining; set before others are accepted
	conns   map[net.Conn]bool // true: a PE has joined by it; guarded by mu
	gone    map[int]bool      // PEs that have said bye; guarded by mu
	failure error             // guarded by mu until failed is closed
	closing bool              // guarded by mu
	exiting bool              // by GlobalExit; guarded by mu
	closed  atomic.Bool
}

// ErrClosed: the World, or context, was closed.
var ErrClosed = errors.New("shmem: closed")

// DeadError is the end of a PE that had not called Close.
type DeadError struct {
	PE  int
	Err error // what was seen of it
}

// Error says which PE.
func (e *DeadError) Error() string { return fmt.Sprintf("shmem: PE %d has ended: %v", e.PE, e.Err) }

// Unwrap is what was seen of it.
func (e *DeadError) Unwrap() error { return e.Err }

// OpError is the first failure of a context's operations.
type OpError struct {
	Op  string // such as "put"
	PE  int    // of the World
	Err error
}

// Error says what failed.
func (e *OpError) Error() string { return fmt.Sprintf("shmem: %s, PE %d: %v", e.Op, e.PE, e.Err) }

// Unwrap is the cause.
func (e *OpError) Unwrap() error { return e.Err }

// PE is this PE's number, 0 to NumPEs-1.
func (w *World) PE() int { return w.pe }

// NumPEs is how many PEs the job has.
func (w *World) NumPEs() int { return len(w.peers) }

// Ctx is the default context.
func (w *World) Ctx() *Ctx { return w.ctx }

// Team is the team of all PEs.
func (w *World) Team() *Team { return w.team }

// SharedTeam is the team of the PEs of this host whose memory is mapped to each other,
// like SHMEM_TEAM_SHARED. This PE is one of them. All of them have the same PEs in it.
func (w *World) SharedTeam() *Team { return w.near }

// Host is this PE's membership in the fabric, by which it may listen and dial as
// well; nil for the only PE of a job. It is closed with the World.
func (w *World) Host() *sdp.Host { return w.host }

// Mapped tells if the heap of a PE is mapped here, so that operations on it are
// loads and stores, and if not, why.
func (w *World) Mapped(pe int) (bool, error) {
	p := w.peer(pe)
	switch {
	case p.base.Load() != nil:
		return true, nil
	case p.why != nil:
		return false, p.why
	}
	return false, errEnded
}

var errEnded = errors.New("it has ended")

// Accessible tells if operations on a PE can work: it has not ended, like
// shmem_pe_accessible. Each symmetric object can be reached on each such PE.
func (w *World) Accessible(pe int) bool { return !w.peer(pe).dead.Load() }

// HeapLimit is how large the symmetric heap may grow, in bytes: what all objects may take
// together.
func (w *World) HeapLimit() int { return w.heap.size - w.heap.objects }

func (w *World) peer(pe int) *peer {
	if uint(pe) >= uint(len(w.peers)) {
		badPE(pe, len(w.peers))
	}
	return w.peers[pe]
}

// check panics after Close.
func (w *World) check() {
	if w == nil || w.closed.Load() {
		panic("shmem: use of a closed World, or of a zero Sym")
	}
}

// Err is why the job cannot go on: the first PE that ended without Close. nil as
// long as all run.
func (w *World) Err() error {
	select {
	case <-w.failed:
		return w.failure
	default:
		return nil
	}
}

// newWorld makes a World without connections.
func newWorld(o options, goHeap bool) (*World, error) {
	w := &World{
		opts: o, pe: o.pe,
		failed: make(chan struct{}), arrived: make(chan struct{}, 1),
		joined: map[int]bool{}, conns: map[net.Conn]bool{}, gone: map[int]bool{},
		token: rand.Uint64() | 1, closeLimit: closeLimit,
	}
	w.offers.init()
	objects := firstShared + areas*teamBytes(o.n)
	size := int(objects) + (o.heap+pageBytes-1)&^(pageBytes-1)
	var m *memory
	var err error
	if goHeap || !canMap {
		m = goMemory(size, w.token)
	} else if m, err = newMemory(size); err != nil {
		return nil, err
	} else {
		m.mark(w.token)
	}
	w.heap = newHeap(m, objects)
	w.barrier = membarrier.Global
	fence := !membarrier.Register()
	for pe := range o.n {
		p := &peer{w: w, pe: pe, fence: fence}
		w.peers = append(w.peers, p)
	}
	w.self = w.peers[w.pe]
	w.self.reach(m)
	w.place = thisPlace()
	w.places = make([]place, o.n)
	w.places[o.pe] = w.place
	return w, nil
}

// reach makes operations on the peer loads and stores.
func (p *peer) reach(m *memory) {
	p.arm = word4(&m.bytes[0], armAt)
	p.base.Store(&m.bytes[0])
}

// fail ends the job for this PE: pe is gone. All that waits returns an error. The
// others are told: who is several hops away from pe learns of it late.
func (w *World) fail(pe int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost(pe)
	if w.failure != nil || w.exiting || w.closing && w.gone[pe] || w.closed.Load() {
		return
	}
	w.failure = &DeadError{pe, err}
	close(w.failed)
	w.sleepers.wake()
	if w.giveUp != nil {
		w.giveUp()
	}
	if ch := w.peers[pe].ch; ch != nil {
		w.wg.Go(func() { ch.conn.Close() }) // if it lives, it must not wait for us
	}
	others := w.channels(pe)
	w.wg.Go(func() {
		for _, ch := range others {
			_ = ch.tell(opDead, pe)
		}
	})
}

var errEarly = errors.New("it has called Close, and this PE has not")

// left is the orderly end of a PE: its Close has seen all others in theirs.
func (w *World) left(pe int) {
	w.mu.Lock()
	if !w.closing {
		w.mu.Unlock()
		w.fail(pe, errEarly)
		return
	}
	defer w.mu.Unlock()
	w.gone[pe] = true
	w.lost(pe)
}

// hasLeft tells that a PE has called Close.
func (w *World) hasLeft(pe int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.gone[pe]
}

// lost is for the end of a PE: nothing is stored to its heap any more.
func (w *World) lost(pe int) {
	p := w.peers[pe]
	p.dead.Store(true)
	p.base.Store(nil)
}

// closeLimit is World.closeLimit.
const closeLimit = 5 * time.Second

// Close ends this PE's part in the job. It is collective: it waits, like
// shmem_finalize, until all PEs have called it and all operations are done. Then all
// memory is released: no Local or Ptr may be used any more, nor an operation be
// under way. If a PE has ended without Close, it does not wait, and says so.
func (w *World) Close() error {
	w.mu.Lock()
	if w.closing {
		w.mu.Unlock()
		return ErrClosed
	}
	w.closing = true
	w.mu.Unlock()
	err := w.team.Barrier(context.Background())
	if err == nil {
		w.sayBye()
	} else {
		w.hangUp() // for the others this is no orderly end: they must not wait
	}
	w.release()
	if err == nil {
		err = w.opts.launcher.Close()
	}
	return err
}

// sayBye tells all others that this PE is done, and limits the wait for their words.
func (w *World) sayBye() {
	for _, p := range w.peers {
		if p.ch != nil {
			_ = p.ch.tell(opBye, 0)
		}
	}
	limit := time.Now().Add(w.closeLimit)
	w.mu.Lock()
	defer w.mu.Unlock()
	for c, joined := range w.conns {
		if joined {
			_ = c.SetReadDeadline(limit)
		} else {
			w.wg.Go(func() { c.Close() }) // a stranger: no PE is missing
		}
	}
}

// lastWords is how long hangUp waits for room to say why.
const lastWords = time.Second

// hangUp ends all connections, and what waits for them. The others are told first who
// has failed, if anyone: they are to blame that one, and not this PE.
func (w *World) hangUp() {
	w.mu.Lock()
	channels := w.channels(-1)
	var dead *DeadError
	errors.As(w.failure, &dead)
	var conns []net.Conn
	for c := range w.conns { // there will be no more
		conns = append(conns, c)
	}
	w.mu.Unlock()
	for _, ch := range channels {
		_ = ch.conn.SetDeadline(time.Now().Add(lastWords))
	}
	for _, ch := range channels {
		if dead != nil && ch.pe != dead.PE {
			_ = ch.tell(opDead, dead.PE)
		}
	}
	for _, ch := range channels {
		conns = append(conns, ch.conn)
	}
	var wg sync.WaitGroup
	for _, c := range conns {
		wg.Go(func() { c.Close() }) // each may wait for a while
	}
	wg.Wait()
}

// channels are those to all other PEs but one: while Open is under way, to some. The
// caller holds mu.
func (w *World) channels(but int) (all []*channel) {
	for _, p := range w.peers {
		if p.ch != nil && p.pe != but {
			all = append(all, p.ch)
		}
	}
	return all
}

// release gives everything back.
func (w *World) release() {
	if w.ln != nil {
		w.ln.Close()
	}
	w.wg.Wait()
	w.closed.Store(true)
	for _, p := range w.peers {
		p.base.Store(nil)
		if p.ch != nil {
			p.ch.conn.Close()
		}
		if p.mem != nil {
			p.mem.close()
		}
	}
	if w.host != nil {
		w.host.Close()
		if w.opts.fabric == ownFabric(w.opts.job) {
			_ = fabric.Remove(w.spec.Name) // the last one out
		}
	}
	forgetGoMemory(w.token)
	w.heap.close()
}
