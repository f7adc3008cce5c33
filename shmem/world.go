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

// World is one PE's part in a job. Any goroutine may call its methods, and the
// functions of this package that take it or an object made from it. Collective ones
// must be called by all PEs in the same order, one at a time.
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
	fabric  *sdp.Fabric // nil if this is the only PE
	ln      net.Listener
	token   uint64 // names this PE's heap, see heapFile
	// barrier makes the processors of all PEs that map each other pass a memory
	// barrier.
	barrier func() error
	place   place   // where this PE runs
	places  []place // where each PE runs; connect writes one element
	// crowded says that PEs have to take turns at this one's processors, or that
	// their servers need some too. It is set when all have joined.
	crowded bool
	spec    *fabric.Spec // nil if this is the only PE
	// closeLimit is how long Close waits for other PEs' byes after the barrier.
	closeLimit time.Duration

	sleepers sleepers
	offers   offers
	turns    turns
	failed   chan struct{} // closed with the first failure
	wg       sync.WaitGroup

	mu      lock.Mutex[lock.World]
	joined  map[int]bool // PEs whose requests are served; guarded by mu
	arrived chan struct{}
	misfit  error             // error of the first PE of the job that did not fit; guarded by mu
	giveUp  func()            // ends joining; set before connections are accepted
	conns   map[net.Conn]bool // true if a PE has joined by it; guarded by mu
	gone    map[int]bool      // PEs that have said bye; guarded by mu
	failure error             // guarded by mu until failed is closed
	closing bool              // Close has begun; guarded by mu
	exiting bool              // GlobalExit has begun; guarded by mu
	closed  atomic.Bool
}

// ErrClosed reports that the World, or the context, is closed.
var ErrClosed = errors.New("shmem: closed")

// DeadError reports the end of a PE that had not called Close.
type DeadError struct {
	PE  int
	Err error // how the end was noticed
}

// Error returns a message that names the PE.
func (e *DeadError) Error() string { return fmt.Sprintf("shmem: PE %d has ended: %v", e.PE, e.Err) }

// Unwrap returns how the end was noticed.
func (e *DeadError) Unwrap() error { return e.Err }

// OpError reports the first failure of a context's operations.
type OpError struct {
	Op  string // the operation, such as "put"
	PE  int    // number in the World
	Err error
}

// Error returns a message that names the operation and the PE.
func (e *OpError) Error() string { return fmt.Sprintf("shmem: %s, PE %d: %v", e.Op, e.PE, e.Err) }

// Unwrap returns the cause.
func (e *OpError) Unwrap() error { return e.Err }

// PE returns this PE's number, 0 to NumPEs-1.
func (w *World) PE() int { return w.pe }

// NumPEs returns how many PEs the job has.
func (w *World) NumPEs() int { return len(w.peers) }

// Ctx returns the default context.
func (w *World) Ctx() *Ctx { return w.ctx }

// Team returns the team of all PEs.
func (w *World) Team() *Team { return w.team }

// SharedTeam returns the team of the PEs of this host whose memory is mapped to each
// other, like SHMEM_TEAM_SHARED. This PE is one of them. All of them have the same PEs
// in it.
func (w *World) SharedTeam() *Team { return w.near }

// Fabric returns this PE's membership in the fabric, by which it may listen and dial
// as well. It is nil for the only PE of a job. Close of the World closes it.
func (w *World) Fabric() *sdp.Fabric { return w.fabric }

// Mapped reports whether the heap of a PE is mapped here, so that operations on it
// are loads and stores. If not, the error says why.
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

// Accessible reports whether operations on a PE can work, like shmem_pe_accessible.
// They can until it has ended. Every symmetric object can be reached on each such
// PE.
func (w *World) Accessible(pe int) bool { return !w.peer(pe).dead.Load() }

// HeapLimit returns how large the symmetric heap may grow, in bytes. All objects together
// may take as much.
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
		panic(noWorld)
	}
}

const noWorld = "shmem: use of a closed World, or of a zero Sym"

// Err returns why the job cannot go on: a *DeadError for the first PE that ended
// without Close. It returns nil as long as all PEs run.
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

// fail ends the job for this PE, because pe is gone. All waits return an error. The
// other PEs are told, since one that is several hops away from pe learns of it
// late.
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

// left handles the orderly end of a PE, whose Close has seen all others in theirs.
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

// hasLeft reports whether a PE has called Close.
func (w *World) hasLeft(pe int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.gone[pe]
}

// lost handles the end of a PE. Nothing is stored to its heap any more.
func (w *World) lost(pe int) {
	p := w.peers[pe]
	p.dead.Store(true)
	p.base.Store(nil)
}

// closeLimit is the default of World.closeLimit.
const closeLimit = 5 * time.Second

// Close ends this PE's part in the job. It is collective: like shmem_finalize, it
// waits until all PEs have called it and all operations are done. Then it releases
// all memory. No Local or Ptr may be used any more, and no operation may be under
// way. If a PE has ended without Close, or ctx ends first, it does not wait any longer: it
// releases the memory and returns an error, and for the other PEs this one has ended
// without Close.
func (w *World) Close(ctx context.Context) error {
	w.mu.Lock()
	if w.closing {
		w.mu.Unlock()
		return ErrClosed
	}
	w.closing = true
	w.mu.Unlock()
	err := w.team.Barrier(ctx)
	if err == nil {
		w.sayBye()
	} else {
		w.hangUp() // for the others this is no orderly end; they must not wait
	}
	w.release()
	if err == nil {
		err = w.opts.launcher.Close()
	}
	return err
}

// sayBye informs all others that this PE is done, and limits the wait for their byes.
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
			w.wg.Go(func() { c.Close() }) // not of a PE of the job: none is missing
		}
	}
}

// lastWords is how long hangUp waits for room to send the reason.
const lastWords = time.Second

// hangUp ends all connections and all that waits for them. Before, it tells the other
// PEs which PE has failed, if any, so that they blame that one and not this PE.
func (w *World) hangUp() {
	w.mu.Lock()
	channels := w.channels(-1)
	var dead *DeadError
	errors.As(w.failure, &dead)
	var conns []net.Conn
	for c := range w.conns { // there will be no new ones
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

// channels returns the channels to all other PEs except but. While Open is under
// way, there are only some. The caller holds mu.
func (w *World) channels(but int) (all []*channel) {
	for _, p := range w.peers {
		if p.ch != nil && p.pe != but {
			all = append(all, p.ch)
		}
	}
	return all
}

// release releases everything.
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
	if w.fabric != nil {
		w.fabric.Close()
		if w.opts.fabric == ownFabric(w.opts.job) {
			_ = fabric.Remove(w.spec.Name) // this was the last PE
		}
	}
	forgetGoMemory(w.token)
	w.heap.close()
}
