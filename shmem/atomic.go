package shmem

import "github.com/ntbnet/ntbnet/internal/symheap"

// Atomic memory operations: chapter 9.7 of the specification. A word is 4 or 8 bytes. All
// are atomic with each other, whether the heap is mapped or not.
//
// Those that do not fetch return before they are done; Quiet waits for them. The
// nonblocking ones that fetch store at *old, at the latest when Quiet has returned.
// If the fabric fails, the fetching ones return 0 and record the failure in c, see
// Ctx.Err. Only G has a form that returns the error, TryG.

// AtomicFetch returns element i of s at PE pe, like shmem_atomic_fetch.
func AtomicFetch[T ExtAMO](c *Ctx, s Sym[T], i, pe int) T {
	return fromWord[T](c.core.AtomicFetch(s.o, i, sizeOf[T](), pe))
}

// AtomicSet stores v, like shmem_atomic_set.
func AtomicSet[T ExtAMO](c *Ctx, s Sym[T], i int, v T, pe int) {
	c.core.Do(symheap.Set, s.o, i, sizeOf[T](), word(v), pe)
}

// AtomicSwap stores v and returns what was there, like shmem_atomic_swap.
func AtomicSwap[T ExtAMO](c *Ctx, s Sym[T], i int, v T, pe int) T {
	return fromWord[T](c.core.Fetch(symheap.Swap, s.o, i, sizeOf[T](), word(v), 0, pe))
}

// AtomicCompareSwap stores v if cond is there, and returns what was there, like
// shmem_atomic_compare_swap.
func AtomicCompareSwap[T AMO](c *Ctx, s Sym[T], i int, cond, v T, pe int) T {
	return T(c.core.Fetch(symheap.CompareSwap, s.o, i, sizeOf[T](), uint64(v), uint64(cond), pe))
}

// AtomicFetchAdd adds v and returns what was there, like shmem_atomic_fetch_add.
func AtomicFetchAdd[T AMO](c *Ctx, s Sym[T], i int, v T, pe int) T {
	return T(c.core.FetchAdd(s.o, i, sizeOf[T](), uint64(v), pe))
}

// AtomicAdd adds v, like shmem_atomic_add.
func AtomicAdd[T AMO](c *Ctx, s Sym[T], i int, v T, pe int) {
	c.core.Do(symheap.Add, s.o, i, sizeOf[T](), uint64(v), pe)
}

// AtomicFetchInc adds 1 and returns what was there, like shmem_atomic_fetch_inc.
func AtomicFetchInc[T AMO](c *Ctx, s Sym[T], i, pe int) T { return AtomicFetchAdd(c, s, i, 1, pe) }

// AtomicInc adds 1, like shmem_atomic_inc.
func AtomicInc[T AMO](c *Ctx, s Sym[T], i, pe int) { AtomicAdd(c, s, i, 1, pe) }

// AtomicFetchAnd clears the bits that are not in v, and returns what was there, like
// shmem_atomic_fetch_and.
func AtomicFetchAnd[T Bits](c *Ctx, s Sym[T], i int, v T, pe int) T {
	return T(c.core.Fetch(symheap.And, s.o, i, sizeOf[T](), uint64(v), 0, pe))
}

// AtomicAnd clears the bits that are not in v, like shmem_atomic_and.
func AtomicAnd[T Bits](c *Ctx, s Sym[T], i int, v T, pe int) {
	c.core.Do(symheap.And, s.o, i, sizeOf[T](), uint64(v), pe)
}

// AtomicFetchOr sets the bits of v, and returns what was there, like
// shmem_atomic_fetch_or.
func AtomicFetchOr[T Bits](c *Ctx, s Sym[T], i int, v T, pe int) T {
	return T(c.core.Fetch(symheap.Or, s.o, i, sizeOf[T](), uint64(v), 0, pe))
}

// AtomicOr sets the bits of v, like shmem_atomic_or.
func AtomicOr[T Bits](c *Ctx, s Sym[T], i int, v T, pe int) {
	c.core.Do(symheap.Or, s.o, i, sizeOf[T](), uint64(v), pe)
}

// AtomicFetchXor flips the bits of v, and returns what was there, like
// shmem_atomic_fetch_xor.
func AtomicFetchXor[T Bits](c *Ctx, s Sym[T], i int, v T, pe int) T {
	return T(c.core.Fetch(symheap.Xor, s.o, i, sizeOf[T](), uint64(v), 0, pe))
}

// AtomicXor flips the bits of v, like shmem_atomic_xor.
func AtomicXor[T Bits](c *Ctx, s Sym[T], i int, v T, pe int) {
	c.core.Do(symheap.Xor, s.o, i, sizeOf[T](), uint64(v), pe)
}
