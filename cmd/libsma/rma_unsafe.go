//go:build libsma && cgo && linux

package main

/*
#include "sma.h"
*/
import "C"

import (
	"unsafe"

	"github.com/ntbnet/ntbnet/internal/onesided"
	"github.com/ntbnet/ntbnet/internal/symheap"
)

// Operations on PEs whose heaps are not mapped, and waits. C has checked handles, PEs and
// addresses.

// bytesAt returns n bytes of the heap. C has checked that they are there.
func bytesAt(off, n C.size_t) onesided.Object {
	return onesided.Object{Space: lib.space, Off: uintptr(off), N: int(n)}
}

// one returns an element of the heap.
func one(off C.size_t) onesided.Object { return bytesAt(off, 1) }

// done ends the job if an operation of the context has failed.
func (c *callCtx) done(name C.sma_name) {
	must(name, c.core.Err())
}

//export smaStored
func smaStored(pe C.int) { lib.space.Peers()[pe].Stored() }

//export smaPut
func smaPut(name C.sma_name, ctx C.int, off C.size_t, src unsafe.Pointer, n C.size_t, pe C.int) {
	defer rescue(name)
	c := lib.ctxs[ctx].Load()
	switch n {
	case 1, 2, 4, 8:
		lo, _ := symheap.Element(src, uintptr(n))
		c.core.P(one(off), 0, uintptr(n), lo, 0, int(pe))
	default:
		c.core.Put(bytesAt(off, n), src, int(n), 1, int(pe))
	}
	c.done(name)
}

//export smaGet
func smaGet(name C.sma_name, ctx C.int, dst unsafe.Pointer, off, n C.size_t, pe, nbi C.int) {
	defer rescue(name)
	c := lib.ctxs[ctx].Load()
	if nbi != 0 {
		c.core.GetNBI(dst, int(n), bytesAt(off, n), 1, int(pe))
	} else {
		c.core.Get(dst, int(n), bytesAt(off, n), 1, int(pe))
	}
	c.done(name)
}

// stridedOf returns n blocks of elements that lie apart, and how many elements they span here and there.
func stridedOf(remote, local C.ptrdiff_t, block, n, size C.size_t) (s symheap.Strided, far, near int) {
	s = symheap.Strided{N: int(n), Block: int(block), Remote: int(remote), Local: int(local), Size: uintptr(size)}
	return s, (s.N-1)*s.Remote + s.Block, (s.N-1)*s.Local + s.Block
}

//export smaPutStrided
func smaPutStrided(name C.sma_name, ctx C.int, off C.size_t, src unsafe.Pointer, dstep, sstep C.ptrdiff_t, block, n, size C.size_t, pe C.int) {
	defer rescue(name)
	c := lib.ctxs[ctx].Load()
	s, far, near := stridedOf(dstep, sstep, block, n, size)
	c.core.PutStrided(bytesAt(off, C.size_t(far)), src, near, s, int(pe))
	c.done(name)
}

//export smaGetStrided
func smaGetStrided(name C.sma_name, ctx C.int, dst unsafe.Pointer, off C.size_t, dstep, sstep C.ptrdiff_t, block, n, size C.size_t, pe C.int) {
	defer rescue(name)
	c := lib.ctxs[ctx].Load()
	s, far, near := stridedOf(sstep, dstep, block, n, size)
	c.core.GetStrided(dst, near, bytesAt(off, C.size_t(far)), s, int(pe))
	c.done(name)
}

//export smaFetch
func smaFetch(name C.sma_name, ctx, op C.int, off, size C.size_t, v, cond C.uint64_t, pe C.int) (old C.uint64_t) {
	defer rescue(name)
	c := lib.ctxs[ctx].Load()
	old = C.uint64_t(c.core.Fetch(symheap.Op(op), one(off), 0, uintptr(size), uint64(v), uint64(cond), int(pe)))
	c.done(name)
	return old
}

//export smaDo
func smaDo(name C.sma_name, ctx, op C.int, off, size C.size_t, v C.uint64_t, pe C.int) {
	defer rescue(name)
	c := lib.ctxs[ctx].Load()
	c.core.Do(symheap.Op(op), one(off), 0, uintptr(size), uint64(v), int(pe))
	c.done(name)
}

//export smaFetchNBI
func smaFetchNBI(name C.sma_name, ctx C.int, old unsafe.Pointer, op C.int, off, size C.size_t, v, cond C.uint64_t, pe C.int) {
	defer rescue(name)
	c := lib.ctxs[ctx].Load()
	c.core.FetchNBI(old, symheap.Op(op), one(off), 0, uintptr(size), uint64(v), uint64(cond), int(pe))
	c.done(name)
}

//export smaQuiet
func smaQuiet(name C.sma_name, ctx C.int) {
	defer rescue(name)
	must(name, lib.ctxs[ctx].Load().core.Quiet())
}

//export smaPEQuiet
func smaPEQuiet(name C.sma_name, ctx C.int, pes *C.int, n C.size_t) {
	defer rescue(name)
	var some []int
	for _, pe := range unsafe.Slice(pes, n) {
		some = append(some, int(pe))
	}
	must(name, lib.ctxs[ctx].Load().core.QuietPEs(some))
}

//export smaWait
func smaWait(name C.sma_name, ivar unsafe.Pointer, size C.size_t, isSigned, cmp C.int, v C.uint64_t) (is C.uint64_t) {
	defer rescue(name)
	must(name, lib.space.Wait(forever, func() bool {
		is = C.sma_load_word(ivar, size, isSigned)
		return C.sma_word_holds(cmp, isSigned, is, v) != 0
	}))
	return is
}

//export smaWaitMany
func smaWaitMany(name C.sma_name, m *C.struct_sma_many) {
	defer rescue(name)
	must(name, lib.space.Wait(forever, func() bool { return C.sma_many_hold(m) != 0 }))
}
