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

// store puts blocks, which the caller has checked, by the window (pair S19). A block of a word is one store. It returns
// false if they are to be a request.
func (p *Peer) store(off uintptr, src unsafe.Pointer, s symheap.Strided) bool {
	block := uintptr(s.Block) * s.Size
	at, ok := p.open(off, uintptr((s.N-1)*s.Remote)*s.Size+block)
	if !ok {
		return false
	}
	for i := range s.N {
		to, from := at+i*s.Remote*int(s.Size), unsafe.Add(src, uintptr(i*s.Local)*s.Size)
		switch {
		case block == 8 && to%8 == 0:
			p.win.Store64(to, *(*uint64)(from))
		case block == 4 && to%4 == 0:
			p.win.Publish32(to, *(*uint32)(from))
		default:
			p.win.Write(to, unsafe.Slice((*byte)(from), block))
		}
	}
	p.win.Flush()
	p.Stored()
	p.ch.Stored() // behind the fence of p.Stored
	return true
}

// storeWord is store of an element, see symheap.Store. All that was put before is seen there first. Quiet need not wait for
// one that the PE waits for.
func (p *Peer) storeWord(off, size uintptr, lo, hi uint64, waited bool) bool {
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
		p.win.Write(at, unsafe.Slice((*byte)(unsafe.Pointer(b)), size))
		p.win.Flush()
		elements.Put(b)
	}
	p.Stored()
	if !waited {
		p.ch.Stored()
	}
	return true
}

// elements holds buffers for elements. A local variable would be allocated at each put.
var elements = sync.Pool{New: func() any { return new([2]uint64) }}

// publishArm says to the PE at the other end of a window that this one is about to sleep. When it returns, that one sees
// what this one stored before, and this one what that one did (pair S19).
func (s *Space) publishArm(arm uint32) {
	if s.across != nil {
		s.across.Publish32(symheap.FarArmAt, arm)
		s.across.Order()
	}
}
