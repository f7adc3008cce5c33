package shmem

import (
	"unsafe"

	"github.com/ntbnet/ntbnet/internal/symheap"
)

// The nonblocking forms of atomic operations that fetch. What was there is stored at
// *old, at the latest when Quiet has returned; until then *old may not be used.

// AtomicFetchNBI is AtomicFetch, like shmem_atomic_fetch_nbi.
func AtomicFetchNBI[T ExtAMO](c *Ctx, old *T, s Sym[T], i, pe int) {
	c.core.FetchNBI(unsafe.Pointer(old), symheap.Fetch, s.o, i, sizeOf[T](), 0, 0, pe)
}

// AtomicSwapNBI is AtomicSwap, like shmem_atomic_swap_nbi.
func AtomicSwapNBI[T ExtAMO](c *Ctx, old *T, s Sym[T], i int, v T, pe int) {
	c.core.FetchNBI(unsafe.Pointer(old), symheap.Swap, s.o, i, sizeOf[T](), word(v), 0, pe)
}

// AtomicCompareSwapNBI is AtomicCompareSwap, like shmem_atomic_compare_swap_nbi.
func AtomicCompareSwapNBI[T AMO](c *Ctx, old *T, s Sym[T], i int, cond, v T, pe int) {
	c.core.FetchNBI(unsafe.Pointer(old), symheap.CompareSwap, s.o, i, sizeOf[T](), uint64(v), uint64(cond), pe)
}

// AtomicFetchAddNBI is AtomicFetchAdd, like shmem_atomic_fetch_add_nbi.
func AtomicFetchAddNBI[T AMO](c *Ctx, old *T, s Sym[T], i int, v T, pe int) {
	c.core.FetchNBI(unsafe.Pointer(old), symheap.Add, s.o, i, sizeOf[T](), uint64(v), 0, pe)
}

// AtomicFetchIncNBI is AtomicFetchInc, like shmem_atomic_fetch_inc_nbi.
func AtomicFetchIncNBI[T AMO](c *Ctx, old *T, s Sym[T], i, pe int) {
	AtomicFetchAddNBI(c, old, s, i, 1, pe)
}

// AtomicFetchAndNBI is AtomicFetchAnd, like shmem_atomic_fetch_and_nbi.
func AtomicFetchAndNBI[T Bits](c *Ctx, old *T, s Sym[T], i int, v T, pe int) {
	c.core.FetchNBI(unsafe.Pointer(old), symheap.And, s.o, i, sizeOf[T](), uint64(v), 0, pe)
}

// AtomicFetchOrNBI is AtomicFetchOr, like shmem_atomic_fetch_or_nbi.
func AtomicFetchOrNBI[T Bits](c *Ctx, old *T, s Sym[T], i int, v T, pe int) {
	c.core.FetchNBI(unsafe.Pointer(old), symheap.Or, s.o, i, sizeOf[T](), uint64(v), 0, pe)
}

// AtomicFetchXorNBI is AtomicFetchXor, like shmem_atomic_fetch_xor_nbi.
func AtomicFetchXorNBI[T Bits](c *Ctx, old *T, s Sym[T], i int, v T, pe int) {
	c.core.FetchNBI(unsafe.Pointer(old), symheap.Xor, s.o, i, sizeOf[T](), uint64(v), 0, pe)
}
