package onesided

import (
	"sync"
	"unsafe"

	"github.com/ntbnet/ntbnet/internal/symheap"
	"github.com/ntbnet/ntbnet/ntb"
)

// Window is parts of a PE's heap as memory that can be written at the other end of a bridge: the first Head bytes of the
// heap, and behind them what the heap has from Objects on. A put there is stores, which have left when it returns.
//
// Gets, atomics, and puts of which a part lies elsewhere are requests, over a connection that the same bridge carries. So
// a request comes behind all stores before it. A store does not come behind the requests before it: while one that stores
// may not be done, puts are requests too.
//
// The PE that waits publishes its arm word to the heap of the PE that puts by a window, and calls Order of the bridge before
// it polls again. The other one looks at its copy behind its stores.
type Window struct {
	ntb.Window
	Head, Objects uintptr
	Order         func() // of the device
}

// SetWindow has puts to the PE go by a window. Its puts to this one do too. There is one such PE. The caller excludes other
// calls.
func (p *Peer) SetWindow(w *Window) {
	p.win, p.fence = w, true
	p.arm = symheap.Word4(p.space.heap.Base, symheap.FarArmAt)
	p.space.across = w
}

// open returns where n bytes at an offset of the heap are in the window. It reports whether all of them are, and can be
// stored now. The caller has found that the PE is not dead.
func (p *Peer) open(off, n uintptr) (at int, ok bool) {
	w := p.win
	if w == nil || p.ch.Behind() {
		return 0, false
	}
	end := w.Head
	if off >= w.Objects {
		off, end = off-w.Objects+w.Head, uintptr(w.Len())
	}
	return int(off), off+n <= end
}

// stored follows what was stored by the window (pair S19). What Stored of the channel says is behind the fence.
func (p *Peer) stored() {
	p.Stored()
	p.ch.Stored()
}

// store puts bytes by the window. It returns false if they are to be a request.
func (p *Peer) store(off uintptr, b []byte) bool {
	at, ok := p.open(off, uintptr(len(b)))
	if !ok {
		return false
	}
	p.win.put(at, unsafe.Pointer(unsafe.SliceData(b)), uintptr(len(b)))
	p.win.Flush()
	p.stored()
	return true
}

// put stores n bytes. A word is one store.
func (w *Window) put(off int, src unsafe.Pointer, n uintptr) {
	switch {
	case n == 8 && off%8 == 0:
		w.Store64(off, *(*uint64)(src))
	case n == 4 && off%4 == 0:
		w.Publish32(off, *(*uint32)(src))
	default:
		w.Write(off, unsafe.Slice((*byte)(src), n))
	}
}

// storeStrided is store of blocks, which the caller has checked.
func (p *Peer) storeStrided(off uintptr, src unsafe.Pointer, s symheap.Strided) bool {
	block := uintptr(s.Block) * s.Size
	at, ok := p.open(off, uintptr((s.N-1)*s.Remote)*s.Size+block)
	if !ok {
		return false
	}
	for i := range s.N {
		p.win.put(at+i*s.Remote*int(s.Size), unsafe.Add(src, uintptr(i*s.Local)*s.Size), block)
	}
	p.win.Flush()
	p.stored()
	return true
}

// elements holds buffers for elements. A local variable would be allocated at each put.
var elements = sync.Pool{New: func() any { return new([2]uint64) }}

// storeWord is store of an element, see symheap.Store. All that was put before is seen there first.
func (p *Peer) storeWord(off, size uintptr, lo, hi uint64) bool {
	at, ok := p.open(off, size)
	if !ok {
		return false
	}
	switch size {
	case 8:
		p.win.Publish64(at, lo)
	case 4:
		p.win.Publish32(at, uint32(lo))
	default:
		b := elements.Get().(*[2]uint64)
		*b = [2]uint64{lo, hi}
		p.win.put(at, unsafe.Pointer(b), size)
		p.win.Flush()
		elements.Put(b)
	}
	p.stored()
	return true
}

// tellWaiter is TellWaiter by the window.
func (p *Peer) tellWaiter(off uintptr, v uint64) bool {
	at, ok := p.open(off, 8)
	if !ok {
		return false
	}
	p.win.Publish64(at, v)
	p.Stored() // pair S19
	return true
}

// publishArm says to the PE at the other end of a window that this one is about to sleep. When it returns, that one sees
// what this one stored before, and this one what that one did (pair S19).
func (s *Space) publishArm(arm uint32) {
	if s.across != nil {
		s.across.Publish32(symheap.FarArmAt, arm)
		s.across.Order()
	}
}
