package ntbmem

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/ntb"
)

const (
	doorbells   = 16
	scratchpads = 16
)

// Pair returns the two ends of a bridge with windows of size bytes each. The
// link is up until either end is closed.
func Pair(size int) (a, b ntb.Device) {
	if size < 64 || size%64 != 0 {
		panic(fmt.Sprintf("ntbmem: window of %d bytes, want a multiple of 64", size))
	}
	c := &cable{down: make(chan struct{})}
	x, y := newEnd(c, size), newEnd(c, size)
	x.peer, y.peer = y, x
	return x, y
}

// cable joins two ends.
type cable struct {
	once sync.Once
	down chan struct{} // closed by the first end that closes
}

type end struct {
	cable *cable // immutable
	peer  *end   // immutable
	mem   []byte // the peer stores, and this end reads; immutable

	spads  [scratchpads]atomic.Uint32 // stored by the peer
	rung   [doorbells]chan struct{}   // capacity 1; the peer sends
	once   sync.Once
	closed chan struct{}
}

func newEnd(c *cable, size int) *end {
	e := &end{cable: c, mem: ntb.AlignedBytes(size), closed: make(chan struct{})}
	for i := range e.rung {
		e.rung[i] = make(chan struct{}, 1)
	}
	return e
}

func (e *end) Caps() ntb.Caps {
	return ntb.Caps{
		Backend: "mem", Doorbells: doorbells, Scratchpads: scratchpads,
		SameProcess: true, Coherent: true, FenceToLook: true,
	}
}

func (e *end) Inbound() []byte      { return e.mem }
func (e *end) Outbound() ntb.Window { return ntb.MappedWindow(e.peer.mem, ntb.Cacheable) }

func (e *end) Spad(i int) uint32 {
	if !e.LinkUp() {
		return ^uint32(0)
	}
	return e.spads[i].Load()
}

func (e *end) SetPeerSpad(i int, v uint32) {
	lock.Device()
	if e.LinkUp() {
		e.peer.spads[i].Store(v)
	}
}

func (e *end) RingDoorbell(bit int) {
	lock.Device()
	// A channel that appears full is left alone, at once and without a lock. The
	// waiter that takes its token must see what was stored before (pair S11, with
	// WaitDoorbell).
	ntb.Fence()
	select {
	case e.peer.rung[bit] <- struct{}{}:
	default: // rung already
	}
}

func (e *end) WaitDoorbell(bit int) error {
	if err := e.linkError(); err != nil {
		return err
	}
	select {
	case <-e.rung[bit]: // pair S11: the caller checks memory after it
	case <-e.cable.down:
	}
	return e.linkError()
}

// linkError returns the error for WaitDoorbell in the present state. Close marks
// the end before it takes the cable down. So linkError checks for Close first,
// where a select would choose either.
func (e *end) linkError() error {
	select {
	case <-e.closed:
		return ntb.ErrClosed
	default:
	}
	if !e.LinkUp() {
		return ntb.ErrLinkDown
	}
	return nil
}

func (e *end) LinkUp() bool {
	select {
	case <-e.cable.down:
		return false
	default:
		return true
	}
}

// Order is a fence. The CPUs of both ends are coherent, and publishers fence before
// they check for an answer (Caps.FenceToLook).
func (e *end) Order() {
	lock.Device()
	ntb.Fence()
}

func (e *end) DMA(int) ntb.DMAChannel { panic("ntbmem: no DMA channels") }

// Reclaim implements ntb.Device. The windows are on the heap.
func (e *end) Reclaim(int, int) error { return ntb.ErrNotSupported }

func (e *end) Disable() { e.cable.once.Do(func() { close(e.cable.down) }) }

func (e *end) Close() error {
	e.once.Do(func() {
		close(e.closed)
		e.Disable()
	})
	return nil
}
