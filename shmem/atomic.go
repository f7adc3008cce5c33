package shmem

// Atomic memory operations: chapter 9.7 of the specification.
//
// On a PE whose heap is mapped they are the processor's atomic instructions. For
// any other PE they are requests; its server executes the same instructions, and
// replies to those that fetch. So all are atomic with each other, whichever way
// each takes. A word is 4 or 8 bytes.
//
// Those that do not fetch return before they are done; Quiet waits for them. The
// nonblocking ones that fetch store at *old, at the latest when Quiet has returned.
// If the fabric fails, the fetching ones return 0 and record the failure in c, see
// Ctx.Err. Only G has a form that returns the error, TryG.

// AtomicFetch returns element i of s at PE pe, like shmem_atomic_fetch.
func AtomicFetch[T ExtAMO](c *Ctx, s Sym[T], i, pe int) T {
	p, off := c.peer(s.w, pe), s.at(i)
	if base := p.base.Load(); base != nil {
		return atomicLoad(elem[T](base, off))
	}
	return fetchFar[T](c, "atomic fetch", p, request{op: opAtomic, amo: amoFetch, off: uint64(off)})
}

// AtomicSet stores v, like shmem_atomic_set.
func AtomicSet[T ExtAMO](c *Ctx, s Sym[T], i int, v T, pe int) {
	p, off := c.peer(s.w, pe), s.at(i)
	if base := p.base.Load(); base != nil {
		atomicStore(elem[T](base, off), v)
		p.stored()
		return
	}
	doFar[T](c, "atomic set", p, request{op: opAtomic, amo: amoSet, off: uint64(off), a: word(v)})
}

// AtomicSwap stores v and returns what was there, like shmem_atomic_swap.
func AtomicSwap[T ExtAMO](c *Ctx, s Sym[T], i int, v T, pe int) T {
	p, off := c.peer(s.w, pe), s.at(i)
	if base := p.base.Load(); base != nil {
		old := atomicSwap(elem[T](base, off), v)
		p.stored()
		return old
	}
	return fetchFar[T](c, "atomic swap", p, request{op: opAtomic, amo: amoSwap, off: uint64(off), a: word(v)})
}

// AtomicCompareSwap stores v if cond is there, and returns what was there, like
// shmem_atomic_compare_swap.
func AtomicCompareSwap[T AMO](c *Ctx, s Sym[T], i int, cond, v T, pe int) T {
	p, off := c.peer(s.w, pe), s.at(i)
	if base := p.base.Load(); base != nil {
		old := atomicCompareSwap(elem[T](base, off), cond, v)
		p.stored()
		return old
	}
	return fetchFar[T](c, "atomic compare-and-swap", p,
		request{op: opAtomic, amo: amoCompareSwap, off: uint64(off), a: word(v), b: word(cond)})
}

// AtomicFetchAdd adds v and returns what was there, like shmem_atomic_fetch_add.
func AtomicFetchAdd[T AMO](c *Ctx, s Sym[T], i int, v T, pe int) T {
	p, off := c.peer(s.w, pe), s.at(i)
	if base := p.base.Load(); base != nil {
		old := atomicAdd(elem[T](base, off), v)
		p.stored()
		return old
	}
	return fetchFar[T](c, "atomic fetch-add", p, request{op: opAtomic, amo: amoAdd, off: uint64(off), a: word(v)})
}

// AtomicAdd adds v, like shmem_atomic_add.
func AtomicAdd[T AMO](c *Ctx, s Sym[T], i int, v T, pe int) {
	p, off := c.peer(s.w, pe), s.at(i)
	if base := p.base.Load(); base != nil {
		atomicAdd(elem[T](base, off), v)
		p.stored()
		return
	}
	doFar[T](c, "atomic add", p, request{op: opAtomic, amo: amoAdd, off: uint64(off), a: word(v)})
}

// AtomicFetchInc adds 1 and returns what was there, like shmem_atomic_fetch_inc.
func AtomicFetchInc[T AMO](c *Ctx, s Sym[T], i, pe int) T { return AtomicFetchAdd(c, s, i, 1, pe) }

// AtomicInc adds 1, like shmem_atomic_inc.
func AtomicInc[T AMO](c *Ctx, s Sym[T], i, pe int) { AtomicAdd(c, s, i, 1, pe) }

// bitwise does and, or or xor on a word of a mapped heap.
func bitwise[T Bits](p *T, op amo, v T) T {
	switch op {
	case amoAnd:
		return atomicAnd(p, v)
	case amoOr:
		return atomicOr(p, v)
	}
	return atomicXor(p, v)
}

func fetchBits[T Bits](c *Ctx, name string, op amo, s Sym[T], i int, v T, pe int) T {
	p, off := c.peer(s.w, pe), s.at(i)
	if base := p.base.Load(); base != nil {
		old := bitwise(elem[T](base, off), op, v)
		p.stored()
		return old
	}
	return fetchFar[T](c, name, p, request{op: opAtomic, amo: op, off: uint64(off), a: word(v)})
}

func doBits[T Bits](c *Ctx, name string, op amo, s Sym[T], i int, v T, pe int) {
	p, off := c.peer(s.w, pe), s.at(i)
	if base := p.base.Load(); base != nil {
		bitwise(elem[T](base, off), op, v)
		p.stored()
		return
	}
	doFar[T](c, name, p, request{op: opAtomic, amo: op, off: uint64(off), a: word(v)})
}

// AtomicFetchAnd clears the bits that are not in v, and returns what was there,
// like shmem_atomic_fetch_and.
func AtomicFetchAnd[T Bits](c *Ctx, s Sym[T], i int, v T, pe int) T {
	return fetchBits(c, "atomic fetch-and", amoAnd, s, i, v, pe)
}

// AtomicAnd clears the bits that are not in v, like shmem_atomic_and.
func AtomicAnd[T Bits](c *Ctx, s Sym[T], i int, v T, pe int) {
	doBits(c, "atomic and", amoAnd, s, i, v, pe)
}

// AtomicFetchOr sets the bits of v and returns what was there, like
// shmem_atomic_fetch_or.
func AtomicFetchOr[T Bits](c *Ctx, s Sym[T], i int, v T, pe int) T {
	return fetchBits(c, "atomic fetch-or", amoOr, s, i, v, pe)
}

// AtomicOr sets the bits of v, like shmem_atomic_or.
func AtomicOr[T Bits](c *Ctx, s Sym[T], i int, v T, pe int) {
	doBits(c, "atomic or", amoOr, s, i, v, pe)
}

// AtomicFetchXor flips the bits of v and returns what was there, like
// shmem_atomic_fetch_xor.
func AtomicFetchXor[T Bits](c *Ctx, s Sym[T], i int, v T, pe int) T {
	return fetchBits(c, "atomic fetch-xor", amoXor, s, i, v, pe)
}

// AtomicXor flips the bits of v, like shmem_atomic_xor.
func AtomicXor[T Bits](c *Ctx, s Sym[T], i int, v T, pe int) {
	doBits(c, "atomic xor", amoXor, s, i, v, pe)
}

// fetchFar does an atomic operation by a request with a reply, and returns the old
// value.
func fetchFar[T ExtAMO](c *Ctx, name string, p *peer, r request) (old T) {
	if ch := c.channel(name, p); ch != nil {
		r.width = uint8(sizeOf[T]())
		c.fail(name, p, ch.fetch(&r, bytesAt(&old)))
	}
	return old
}

// doFar does an atomic operation by a request without a reply.
func doFar[T ExtAMO](c *Ctx, name string, p *peer, r request) {
	if ch := c.channel(name, p); ch != nil {
		r.width = uint8(sizeOf[T]())
		c.fail(name, p, ch.do(&r, nil))
	}
}
