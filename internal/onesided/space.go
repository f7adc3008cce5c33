package onesided

import (
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/ntbnet/ntbnet/internal/symheap"
)

// Space is the heaps of all PEs of a job, as this PE sees them.
type Space struct {
	// Immutable once all PEs have joined.
	heap    *symheap.Heap
	crowded bool // see SetCrowded
	peers   []*Peer
	self    *Peer
	// barrier makes the processors of all PEs that map each other pass a memory barrier.
	barrier func() error
	// opError returns the error of an operation on a PE.
	opError func(op string, pe int, err error) error

	across   *Window       // of the PE to which arm words are published, see SetWindow; immutable once all PEs have joined
	served   atomic.Bool   // see SetServed
	recheck  time.Duration // see SetRecheck; immutable once all PEs have joined
	sleepers sleepers
	closed   atomic.Bool

	failed  chan struct{}         // closed by Fail
	failure atomic.Pointer[error] // why; stored before a PE is dead because of it, and before failed is closed
}

// New makes the space of PE me of n, whose own heap is heap. fence says that PEs which store
// to it make a barrier, since barrier does not work here. opError makes the errors of
// operations.
func New(me, n int, heap *symheap.Heap, fence bool, barrier func() error, opError func(op string, pe int, err error) error) *Space {
	s := &Space{heap: heap, barrier: barrier, opError: opError, failed: make(chan struct{})}
	for pe := range n {
		s.peers = append(s.peers, &Peer{space: s, pe: pe, fence: fence})
	}
	s.self = s.peers[me]
	s.self.Reach(heap.Memory)
	return s
}

// Heap returns this PE's own heap.
func (s *Space) Heap() *symheap.Heap { return s.heap }

// Peers returns all PEs, this one too, by their numbers.
func (s *Space) Peers() []*Peer { return s.peers }

// SetCrowded says that PEs take turns at this one's processors, or that their servers need
// some too. It is called before the first wait.
func (s *Space) SetCrowded() { s.crowded = true }

// SetServed says that no other PE stores to this one's heap but by requests, and that this PE's
// servers need the processor on which a wait would poll. So waits sleep at once: a server that has
// spun for the request wakes them, and lets them run. It is called once all PEs have joined.
func (s *Space) SetServed() {
	s.self.SetFence() // goroutines of this process that store to its heap
	s.served.Store(true)
}

// SetThreads says that threads of C wait here. It is called before other PEs join.
func (s *Space) SetThreads(t *Threads) { s.sleepers.threads = t }

// SetRecheck makes a wait that sleeps poll again after each d, for programs that store to this
// PE's heap by other ways than this package. It is called before the first wait.
func (s *Space) SetRecheck(d time.Duration) { s.recheck = d }

// Fail ends all waits with an error. It calls lost, which marks the PE that has ended, when Err returns
// the error and before any wait ends: an operation that finds the PE dead finds why. Fail is called once.
func (s *Space) Fail(err error, lost func()) {
	s.failure.Store(&err)
	lost()
	close(s.failed)
	s.sleepers.wake()
}

// Failed returns a channel that Fail closes.
func (s *Space) Failed() <-chan struct{} { return s.failed }

// Err returns the error of Fail, or nil.
func (s *Space) Err() error {
	if err := s.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// ErrClosed reports that the space, or the other PE, is closed.
var ErrClosed = errors.New("shmem: closed")

// Close makes all later use panic. The heaps are unmapped by their owners.
func (s *Space) Close() {
	s.closed.Store(true)
	for _, p := range s.peers {
		p.base.Store(nil)
	}
}

// Closed reports whether Close was called.
func (s *Space) Closed() bool { return s.closed.Load() }

// Check panics after Close, and for a nil Space.
func (s *Space) Check() {
	if s == nil || s.closed.Load() {
		BadSpace()
	}
}

// Target returns the target of requests that PE pe sends to this one. dead and exit handle
// what concerns the job.
func (s *Space) Target(dead func(pe int), exit func(status int)) *Target {
	return &Target{s, dead, exit}
}

// Target is the activemsg.Target of a PE's requests.
type Target struct {
	s    *Space
	dead func(pe int)
	exit func(status int)
}

// Stored wakes this PE's sleepers, unless there are none. It pairs with Space.park, as a
// store of a PE that has mapped the heap does (pair S8).
func (t *Target) Stored() {
	fullFence()
	if !t.s.self.armed() {
		return
	}
	t.s.self.wake()
	if t.s.served.Load() && t.s.sleepers.threads == nil {
		runtime.Gosched() // to the goroutine that was woken, before another thread takes it
	}
}

// Wake wakes this PE's sleepers.
func (t *Target) Wake() { t.s.sleepers.wake() }

// Dead handles that the other PE says that PE pe has ended.
func (t *Target) Dead(pe int) {
	if pe < len(t.s.peers) && pe != t.s.self.pe {
		t.dead(pe)
	}
}

// Exit handles that the other PE ends the job.
func (t *Target) Exit(status int) { t.exit(status) }
