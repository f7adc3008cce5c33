package ntbdma

import (
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/ntbnet/ntbnet/ntb"
)

// registry is the memory that a channel can read. An engine of software can read any. It
// insists on its own, so that code which works with it works with one of hardware.
type registry struct {
	mu    sync.Mutex
	areas [][]byte // in the order of their addresses; guarded by mu
	bytes int      // of all of them; guarded by mu
}

func address(p []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(p))) }

// find returns the index of the last area that begins at p or before it, or -1. The caller
// holds mu.
func (r *registry) find(p []byte) int {
	i, found := slices.BinarySearchFunc(r.areas, address(p), func(a []byte, at uintptr) int {
		switch b := address(a); {
		case b < at:
			return -1
		case b > at:
			return 1
		}
		return 0
	})
	if found {
		return i
	}
	return i - 1
}

// Alloc implements ntb.DMAChannel.
func (r *registry) Alloc(n int) ([]byte, error) {
	if n < 1 {
		panic(fmt.Sprintf("ntbdma: %d bytes of memory", n))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if n > MaxMemory-r.bytes {
		return nil, fmt.Errorf("ntbdma: no room for %d bytes of memory beside %d", n, r.bytes)
	}
	mem := ntb.AlignedBytes(n)
	r.areas = slices.Insert(r.areas, r.find(mem)+1, mem)
	r.bytes += n
	return mem, nil
}

// Free implements ntb.DMAChannel.
func (r *registry) Free(mem []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := r.find(mem)
	if i < 0 || address(r.areas[i]) != address(mem) || len(r.areas[i]) != len(mem) {
		panic(fmt.Sprintf("ntbdma: Free of %d bytes that Alloc has not returned", len(mem)))
	}
	r.areas = slices.Delete(r.areas, i, i+1)
	r.bytes -= len(mem)
}

// check panics if src is not registered.
func (r *registry) check(src []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := r.find(src)
	if i < 0 || address(src)+uintptr(len(src)) > address(r.areas[i])+uintptr(len(r.areas[i])) {
		panic(fmt.Sprintf("ntbdma: a copy of %d bytes that are not registered", len(src)))
	}
}
