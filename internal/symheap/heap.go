package symheap

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ntbnet/ntbnet/internal/lock"
)

// Layout of a PE's heap. Offsets are in bytes from its beginning:
//
//	0x0000  4  arm: changes when this PE is about to sleep; written by this PE
//	0x0008  8  token: says which heap this is; written by this PE before others know of it
//	0x0040  4  far arm: the arm of the PE whose window this one puts to; written by that PE, by this one's window
//	0x1000     work areas of teams, written by all PEs
//	...        objects
//
// The memory is allocated at its limit, and takes pages as they are touched. So it grows
// without a copy, and no address ever changes.
const (
	ArmAt     = 0
	TokenAt   = 8
	FarArmAt  = LineBytes
	Shared    = 0x1000 // what other PEs may write begins here
	PageBytes = 4096
	LineBytes = 64 // a cache line; objects do not share one
)

// ErrFull reports that the symmetric heap has no room for an object.
var ErrFull = errors.New("shmem: symmetric heap is full")

// Heap is the symmetric heap of this PE.
type Heap struct {
	// Immutable.
	*Memory
	Base    *byte
	Size    int
	Objects int // where objects begin

	mu     lock.Mutex[lock.Heap]
	free   []extent           // by offset, none next to another; guarded by mu
	used   map[uintptr]uint64 // bytes of each object, as requested; guarded by mu
	dumped uintptr            // a core dump has the pages before it; guarded by mu
}

// extent is n bytes from off on.
type extent struct {
	off uintptr
	n   uint64
}

// New makes a heap of memory. Objects begin at an offset, behind the work areas.
func New(m *Memory, objectsAt uintptr) *Heap {
	size := len(m.Bytes)
	h := &Heap{
		Memory: m, Base: &m.Bytes[0], Size: size, Objects: int(objectsAt),
		free: []extent{{objectsAt, uint64(size) - uint64(objectsAt)}},
		used: map[uintptr]uint64{},
	}
	h.dump(objectsAt)
	return h
}

// dump has core dumps contain the heap up to end, so all that was ever allocated. Of the rest the kernel would make each
// page, to write zeros. The caller holds mu.
func (h *Heap) dump(end uintptr) {
	if end > h.dumped {
		h.dumped = (end + PageBytes - 1) &^ (PageBytes - 1)
		h.inCore(int(min(h.dumped, uintptr(h.Size))))
	}
}

// At returns n bytes of the heap.
func (h *Heap) At(off uintptr, n int) []byte { return h.Bytes[off : off+uintptr(n) : off+uintptr(n)] }

// Alloc takes n bytes for an object, from the first extent that is large enough. All PEs
// make the same calls in the same order, so all get the same offset.
func (h *Heap) Alloc(n uint64, align uintptr) (uintptr, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	want := n
	n = whole(n)
	for i, e := range h.free {
		off := (e.off + align - 1) &^ (align - 1)
		gap := uint64(off - e.off)
		if e.n < gap || e.n-gap < n {
			continue
		}
		var left []extent
		if gap > 0 {
			left = append(left, extent{e.off, gap})
		}
		if rest := e.n - gap - n; rest > 0 {
			left = append(left, extent{off + uintptr(n), rest})
		}
		h.free = slices.Replace(h.free, i, i+1, left...)
		h.used[off] = want
		h.dump(off + uintptr(n))
		return off, nil
	}
	return 0, fmt.Errorf("%w: %d bytes are wanted, it has %d", ErrFull, want, h.Size-h.Objects)
}

// whole returns the memory that an object of n bytes takes: whole cache lines, at
// least one.
func whole(n uint64) uint64 { return max(LineBytes, (n+LineBytes-1)&^(LineBytes-1)) }

// SizeAt returns how many bytes the object at an offset has, as requested. It returns false
// if none begins there.
func (h *Heap) SizeAt(off uintptr) (n uint64, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n, ok = h.used[off]
	return n, ok
}

// Free gives an object of n bytes back. It returns false if there is none at off.
func (h *Heap) Free(off uintptr, n uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if has, ok := h.used[off]; !ok || n != has {
		return false
	}
	n = whole(n)
	delete(h.used, off)
	i, _ := slices.BinarySearchFunc(h.free, off, func(e extent, off uintptr) int {
		if e.off < off {
			return -1
		}
		return 1
	})
	h.free = slices.Insert(h.free, i, extent{off, n})
	if i+1 < len(h.free) && off+uintptr(n) == h.free[i+1].off {
		h.free[i].n += h.free[i+1].n
		h.free = slices.Delete(h.free, i+1, i+2)
	}
	if i > 0 && h.free[i-1].off+uintptr(h.free[i-1].n) == off {
		h.free[i-1].n += h.free[i].n
		h.free = slices.Delete(h.free, i, i+1)
	}
	return true
}
