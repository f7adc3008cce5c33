package job

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/ntbnet/ntbnet/internal/activemsg"
	"github.com/ntbnet/ntbnet/internal/collective"
	"github.com/ntbnet/ntbnet/internal/heapmem"
	"github.com/ntbnet/ntbnet/internal/launch"
	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/internal/onesided"
	"github.com/ntbnet/ntbnet/internal/shm/membarrier"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/internal/symheap"
	"github.com/ntbnet/ntbnet/sdp"
)

// World is one PE's part in a job. Any goroutine may call its methods, and those of what
// it returns. Collective ones must be called by all PEs in the same order, one at a time.
type World struct {
	// Immutable once open.
	opts    options
	pe      int
	peers   []*peer // by PE
	heap    *symheap.Heap
	space   *onesided.Space
	team    *Team
	near    *Team         // see SharedTeam
	sharers [][]uint64    // see share
	ctx     *onesided.Ctx // the default context
	token   uint64        // names this PE's heap, random and not 0
	parts   []machinePart // where each PE runs; connect writes one element
	attachment
	exiting chan struct{} // closed under mu when GlobalExit begins to end this process
	// closeLimit is how long Close waits for other PEs' byes after the barrier.
	closeLimit time.Duration

	turns turns
	sets  sets
	wg    sync.WaitGroup

	// mu guards the following, and part of joining.
	mu lock.Mutex[lock.World]
	joining
	conns   map[net.Conn]bool // true if a PE has joined by it
	closing bool              // Close has begun
}

// attachment is how a PE is reached by the others. It is immutable, and zero, but for fence,
// for the only PE of a job.
type attachment struct {
	spec   *spec.Spec
	fabric *sdp.Fabric
	ln     net.Listener
	window *heapmem.Window // of which parts of the heap are; nil if there is none
	recall func()          // ends the loan of the heap; nil if that cannot be mapped
	fence  bool            // a PE that stores to the heap makes a barrier, since this one has no membarrier
}

// joining is how far the PEs of a job have found each other.
type joining struct {
	arrived chan struct{}
	giveUp  func() // ends it; set before connections are accepted

	// World.mu guards the following.
	joined map[int]bool // PEs whose requests are served
	misfit error        // error of the first PE of the job that did not fit
}

// peer is a PE as seen from this one.
type peer struct {
	*onesided.Peer
	// Immutable once the World is open.
	node int             // the PE's node in the fabric, 0 if there is one host
	mem  *symheap.Memory // the mapping, if it is not this PE's own heap
	why  error           // why its heap is not mapped here; nil if it is
	gone chan struct{}   // closed under World.mu when the PE has ended
}

// ErrClosed reports that the World, or the context, is closed.
var ErrClosed = onesided.ErrClosed

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

// Team returns the team of all PEs.
func (w *World) Team() *Team { return w.team }

// SharedTeam returns the team of the PEs of this host whose memory is mapped to each other.
func (w *World) SharedTeam() *Team { return w.near }

// Space returns the heaps of all PEs.
func (w *World) Space() *onesided.Space { return w.space }

// Heap returns this PE's own heap.
func (w *World) Heap() *symheap.Heap { return w.heap }

// Fabric returns this PE's membership in the fabric, nil for the only PE of a job. Close of the
// World closes it.
func (w *World) Fabric() *sdp.Fabric { return w.fabric }

// Mapped reports whether the heap of a PE is mapped here, so that operations on it
// are loads and stores. If not, the error says why.
func (w *World) Mapped(pe int) (bool, error) {
	p := w.peer(pe)
	switch {
	case p.Mapped():
		return true, nil
	case p.why != nil:
		return false, p.why
	}
	return false, errEnded
}

var errEnded = errors.New("it has ended")

// Accessible reports whether operations on a PE can work. They can until it has ended.
func (w *World) Accessible(pe int) bool { return !w.peer(pe).Dead() }

// HeapLimit returns how many bytes all objects together may take.
func (w *World) HeapLimit() int { return w.heap.Size - w.heap.Objects }

// Peer returns a PE. It panics if there is none of that number.
func (w *World) Peer(pe int) *onesided.Peer { return w.peer(pe).Peer }

func (w *World) peer(pe int) *peer {
	if uint(pe) >= uint(len(w.peers)) {
		onesided.BadPE(pe, len(w.peers))
	}
	return w.peers[pe]
}

// Check panics after Close.
func (w *World) Check() { w.space.Check() }

// Err returns why the job cannot go on: a *DeadError for the first PE that ended
// without Close. It returns nil as long as all PEs run.
func (w *World) Err() error { return w.space.Err() }

// objectsAt returns where objects begin in the heap of a job of n PEs.
func objectsAt(n int) int { return int(symheap.Shared + areas*collective.AreaBytes(n)) }

// newWorld makes a World without connections.
func newWorld(ctx context.Context, o options) (*World, error) {
	w := &World{
		opts: o, pe: o.PE, token: rand.Uint64() | 1, exiting: make(chan struct{}), closeLimit: closeLimit,
		joining: joining{arrived: make(chan struct{}, 1), joined: map[int]bool{}}, conns: map[net.Conn]bool{},
	}
	objects := objectsAt(o.N)
	size := objects + (o.Heap+symheap.PageBytes-1)&^(symheap.PageBytes-1)
	m, err := o.newHeap(ctx, size, w.token)
	if err != nil {
		return nil, err
	}
	w.heap = symheap.New(m, uintptr(objects))
	w.fence = !membarrier.Register()
	w.space = onesided.New(o.PE, o.N, w.heap, w.fence, membarrier.Global, w.opError)
	w.space.SetThreads(o.Threads)
	for _, p := range w.space.Peers() {
		w.peers = append(w.peers, &peer{Peer: p, gone: make(chan struct{})})
	}
	w.parts = make([]machinePart, o.N)
	w.parts[o.PE] = thisPart()
	return w, nil
}

// opError returns the error of an operation on a PE, or never if GlobalExit ends the job: the program must
// not take the end of PEs that have heard of it earlier for a failure, and end with another status.
// The last request of that PE says which it is. So opError waits until all are read, or for exitLimit if
// the PE lives. A PE may have closed the connection because another one has ended, which its last request
// says as well. Then that end is the error.
func (w *World) opError(op string, pe int, err error) error {
	select {
	case <-w.exiting:
	case <-w.space.Failed():
	case <-w.peers[pe].gone:
	case <-time.After(exitLimit): // it lives
	}
	if w.ending() {
		select {} // this process ends soon
	}
	if dead := w.Err(); dead != nil && !errors.Is(err, activemsg.ErrReply) {
		err = dead
	}
	return &OpError{w.opName(op), pe, err}
}

// ending reports whether GlobalExit has begun to end this process.
func (w *World) ending() bool {
	select {
	case <-w.exiting:
		return true
	default:
		return false
	}
}

// fail ends the job for this PE, because pe is gone. All waits return an error. The
// other PEs are told, since one that is several hops away from pe learns of it
// late.
func (w *World) fail(pe int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ending() {
		return // what is mapped stays so, since the program may not notice
	}
	if w.Err() != nil || w.closing && w.peers[pe].Left() || w.space.Closed() {
		w.lost(pe)
		return
	}
	if !errors.Is(err, net.ErrClosed) && err != errEarly {
		w.opts.launcher.ReportDead(pe)
	}
	w.space.Fail(&DeadError{pe, err}, func() { w.lost(pe) })
	if w.opts.Exit == nil { // else this process says why and ends, as Failed tells it to
		w.opts.launcher.Report(launch.Left)
	}
	if w.giveUp != nil {
		w.giveUp()
	}
	if ch := w.peers[pe].Channel(); ch != nil {
		w.wg.Go(func() { ch.Close() }) // if it lives, it must not wait for us
	}
	if errors.Is(err, net.ErrClosed) {
		return // this PE has hung up
	}
	others := w.reached(pe)
	w.wg.Go(func() {
		for _, p := range others {
			_ = p.Channel().Dead(pe)
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
	w.peers[pe].SetLeft()
	w.lost(pe)
}

// lost says that a PE has ended. The caller holds mu.
func (w *World) lost(pe int) {
	p := w.peers[pe]
	if p.Dead() {
		return
	}
	close(p.gone)
	p.Lost()
}

// closeLimit is the default of World.closeLimit.
const closeLimit = 5 * time.Second

// Close ends this PE's part in the job, and releases all memory. It is collective. If a PE has ended
// without Close, or ctx ends first, it does not wait any longer: it returns an error, and for the
// other PEs this one has ended without Close.
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
	w.opts.launcher.Report(launch.Left)
	if err == nil {
		if !w.opts.Given {
			closedJobs.Add(1)
		}
		err = w.opts.launcher.Close()
	}
	return err
}

// sayBye informs all others that this PE is done, and limits the wait for their byes.
func (w *World) sayBye() {
	for _, p := range w.peers {
		if ch := p.Channel(); ch != nil {
			_ = ch.Bye()
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
	others := w.reached(-1)
	var dead *DeadError
	errors.As(w.Err(), &dead)
	var conns []io.Closer
	for c := range w.conns { // there will be no new ones
		conns = append(conns, c)
	}
	w.mu.Unlock()
	for _, p := range others {
		_ = p.Channel().SetDeadline(time.Now().Add(lastWords))
		conns = append(conns, p.Channel())
	}
	for _, p := range others {
		if dead != nil && p.PE() != dead.PE {
			_ = p.Channel().Dead(dead.PE)
		}
	}
	var wg sync.WaitGroup
	for _, c := range conns {
		wg.Go(func() { c.Close() }) // each may wait for a while
	}
	wg.Wait()
}

// reached returns all other PEs except but that have a channel. While Open is under way,
// there are only some. The caller holds mu.
func (w *World) reached(but int) (all []*peer) {
	for _, p := range w.peers {
		if p.Channel() != nil && p.PE() != but {
			all = append(all, p)
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
	w.space.Close()
	for _, p := range w.peers {
		if ch := p.Channel(); ch != nil {
			ch.Close()
		}
		if p.mem != nil {
			p.mem.Close()
		}
	}
	if w.recall != nil {
		w.recall()
	}
	if w.window != nil {
		_ = w.window.Close()
	}
	if w.fabric != nil {
		w.fabric.Close()
		if w.opts.ownFabric {
			_ = spec.Remove(w.spec.Name) // this was the last PE
		}
	}
	symheap.ForgetGo(w.token)
	w.heap.Close()
}
