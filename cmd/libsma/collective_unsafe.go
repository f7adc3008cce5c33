//go:build libsma && cgo && linux

package main

/*
#include "sma.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/ntbnet/ntbnet/internal/job"
	"github.com/ntbnet/ntbnet/internal/onesided"
	"github.com/ntbnet/ntbnet/internal/symheap"
)

// reductions are what job calls the operations of reductions.
var reductions = map[C.ptrdiff_t]job.Call{
	C.SMA_AND: job.AndReduce, C.SMA_OR: job.OrReduce, C.SMA_XOR: job.XorReduce,
	C.SMA_MIN: job.MinReduce, C.SMA_MAX: job.MaxReduce, C.SMA_SUM: job.SumReduce, C.SMA_PROD: job.ProdReduce,
}

// smaCollective makes a collective call.
//
//export smaCollective
func smaCollective(c *C.struct_sma_coll) {
	defer rescue(c.name)
	t := (*job.Team)(nil)
	if c.team == noTeam {
		t = lib.w.ActiveSet(int(c.start), int(c.log), int(c.npes))
	} else {
		t = jobTeam(c.name, c.team)
	}
	must(c.name, call(t, c))
}

func call(t *job.Team, c *C.struct_sma_coll) error {
	n, size, pes := int(c.n), uintptr(c.size), t.NPEs()
	dst := func(n int) onesided.Object { return object("dest", c.dst, n, size) }
	src := func(n int) onesided.Object { return object("source", c.src, n, size) }
	switch c.op {
	case C.SMA_SYNC:
		return t.Sync(forever)
	case C.SMA_BARRIER:
		return t.Barrier(forever)
	case C.SMA_BROADCAST:
		if c.team == noTeam {
			return t.BroadcastOthers(forever, dst(n), src(n), size, int(c.a))
		}
		return t.Broadcast(forever, dst(n), src(n), size, int(c.a))
	case C.SMA_COLLECT:
		room := 0 // only all PEs together know how many elements there are
		if c.dst > 0 {
			room = (lib.w.Heap().Size - int(c.dst)) / int(size)
		}
		return t.Collect(forever, dst(room), src(n), size)
	case C.SMA_FCOLLECT:
		return t.FCollect(forever, dst(n*pes), src(n), size)
	case C.SMA_ALLTOALL:
		return t.AlltoAll(forever, dst(n*pes), src(n*pes), size)
	case C.SMA_ALLTOALLS:
		if c.a < 1 || c.b < 1 {
			return fmt.Errorf("strides of %d and %d elements", c.a, c.b)
		}
		return t.AlltoAllS(forever, dst(span(n*pes, int(c.a))), src(span(n*pes, int(c.b))), size, int(c.a), int(c.b))
	}
	fold := func(acc, v []byte) {
		C.sma_fold(C.int(c.a), C.int(c.b), unsafe.Pointer(&acc[0]), unsafe.Pointer(&v[0]), C.size_t(len(acc)))
	}
	switch c.op {
	case C.SMA_INSCAN:
		return t.Scan(forever, job.SumInscan, dst(n), src(n), size, fold)
	case C.SMA_EXSCAN:
		return t.Scan(forever, job.SumExscan, dst(n), src(n), size, fold)
	}
	return t.Reduce(forever, reductions[c.a], dst(n), src(n), size, fold)
}

// span returns how many elements n of them take that are stride apart.
func span(n, stride int) int {
	if n == 0 {
		return 0
	}
	return (n-1)*stride + 1
}

// object returns n elements of the heap.
func object(what string, off C.size_t, n int, size uintptr) onesided.Object {
	if n == 0 {
		return onesided.Object{}
	}
	o, ok := lib.w.At(int(off), n, size)
	if !ok {
		panic(fmt.Sprintf("%s: %d elements of %d bytes at offset %d are not all in the symmetric heap, or not aligned", what, n, size, off))
	}
	return o
}

// smaAlloc returns the offset of a new object, or 0 if there is no room.
//
//export smaAlloc
func smaAlloc(name C.sma_name, size, align C.size_t, zero C.int) C.size_t {
	defer rescue(name)
	off, ok := alloc(name, uint64(size), uint64(align))
	if !ok {
		return 0
	}
	if zero != 0 {
		clear(lib.w.Heap().At(off, int(size)))
		must(name, lib.w.Team().Sync(forever))
	}
	return C.size_t(off)
}

func alloc(name C.sma_name, size, align uint64) (uintptr, bool) {
	if size > job.MaxHeap || align > symheap.MaxAlign {
		return 0, false
	}
	off, err := lib.w.Alloc(forever, size, int(align))
	if errors.Is(err, symheap.ErrFull) {
		return 0, false
	}
	must(name, err)
	return off, true
}

// sizeOf returns the size of the object at an offset.
func sizeOf(name C.sma_name, off C.size_t) uint64 {
	size, ok := lib.w.Heap().SizeAt(uintptr(off))
	if !ok {
		failf(name, "no object begins at this address")
	}
	return size
}

//export smaFree
func smaFree(name C.sma_name, off C.size_t) {
	defer rescue(name)
	size := sizeOf(name, off)
	must(name, lib.w.Free(forever, uintptr(off), size))
}

// smaRealloc returns the offset of the object's new place, or 0 if there is no room.
//
//export smaRealloc
func smaRealloc(name C.sma_name, off, size C.size_t) C.size_t {
	defer rescue(name)
	old := sizeOf(name, off)
	made, ok := alloc(name, uint64(size), symheap.LineBytes)
	if !ok {
		return 0
	}
	h := lib.w.Heap()
	n := int(min(old, uint64(size)))
	copy(h.At(made, n), h.At(uintptr(off), n))
	smaFree(name, off)
	return C.size_t(made)
}

// smaLock sets, tries or clears a lock. It returns 0 unless a lock that it tries is taken.
//
//export smaLock
func smaLock(name C.sma_name, what C.int, off C.size_t) C.int {
	defer rescue(name)
	l := lib.w.Lock(uintptr(off))
	var err error
	switch what {
	case C.SMA_LOCK:
		err = l.Set(forever)
	case C.SMA_CLEAR:
		err = l.Clear(forever)
	default:
		var got bool
		if got, err = l.Test(); err == nil && !got {
			return 1
		}
	}
	must(name, err)
	return 0
}
