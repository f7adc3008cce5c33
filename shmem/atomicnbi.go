package shmem

// The nonblocking forms of atomic operations that fetch. What was there is stored at
// *old, at the latest when Quiet has returned; until then *old may not be used.

// AtomicFetchNBI is AtomicFetch, like shmem_atomic_fetch_nbi.
func AtomicFetchNBI[T ExtAMO](c *Ctx, old *T, s Sym[T], i, pe int) {
	if p := c.peer(s.w, pe); p.base.Load() != nil {
		*old = AtomicFetch(c, s, i, pe)
	} else {
		fetchNBI(c, "atomic fetch", p, old, request{amo: amoFetch, off: uint64(s.at(i))})
	}
}

// AtomicSwapNBI is AtomicSwap, like shmem_atomic_swap_nbi.
func AtomicSwapNBI[T ExtAMO](c *Ctx, old *T, s Sym[T], i int, v T, pe int) {
	if p := c.peer(s.w, pe); p.base.Load() != nil {
		*old = AtomicSwap(c, s, i, v, pe)
	} else {
		fetchNBI(c, "atomic swap", p, old, request{amo: amoSwap, off: uint64(s.at(i)), a: word(v)})
	}
}

// AtomicCompareSwapNBI is AtomicCompareSwap, like shmem_atomic_compare_swap_nbi.
func AtomicCompareSwapNBI[T AMO](c *Ctx, old *T, s Sym[T], i int, cond, v T, pe int) {
	if p := c.peer(s.w, pe); p.base.Load() != nil {
		*old = AtomicCompareSwap(c, s, i, cond, v, pe)
	} else {
		fetchNBI(c, "atomic compare-and-swap", p, old,
			request{amo: amoCompareSwap, off: uint64(s.at(i)), a: word(v), b: word(cond)})
	}
}

// AtomicFetchAddNBI is AtomicFetchAdd, like shmem_atomic_fetch_add_nbi.
func AtomicFetchAddNBI[T AMO](c *Ctx, old *T, s Sym[T], i int, v T, pe int) {
	if p := c.peer(s.w, pe); p.base.Load() != nil {
		*old = AtomicFetchAdd(c, s, i, v, pe)
	} else {
		fetchNBI(c, "atomic fetch-add", p, old, request{amo: amoAdd, off: uint64(s.at(i)), a: word(v)})
	}
}

// AtomicFetchIncNBI is AtomicFetchInc, like shmem_atomic_fetch_inc_nbi.
func AtomicFetchIncNBI[T AMO](c *Ctx, old *T, s Sym[T], i, pe int) {
	AtomicFetchAddNBI(c, old, s, i, 1, pe)
}

// AtomicFetchAndNBI is AtomicFetchAnd, like shmem_atomic_fetch_and_nbi.
func AtomicFetchAndNBI[T Bits](c *Ctx, old *T, s Sym[T], i int, v T, pe int) {
	bitsNBI(c, "atomic fetch-and", amoAnd, old, s, i, v, pe)
}

// AtomicFetchOrNBI is AtomicFetchOr, like shmem_atomic_fetch_or_nbi.
func AtomicFetchOrNBI[T Bits](c *Ctx, old *T, s Sym[T], i int, v T, pe int) {
	bitsNBI(c, "atomic fetch-or", amoOr, old, s, i, v, pe)
}

// AtomicFetchXorNBI is AtomicFetchXor, like shmem_atomic_fetch_xor_nbi.
func AtomicFetchXorNBI[T Bits](c *Ctx, old *T, s Sym[T], i int, v T, pe int) {
	bitsNBI(c, "atomic fetch-xor", amoXor, old, s, i, v, pe)
}

func bitsNBI[T Bits](c *Ctx, name string, op amo, old *T, s Sym[T], i int, v T, pe int) {
	if p := c.peer(s.w, pe); p.base.Load() != nil {
		*old = fetchBits(c, name, op, s, i, v, pe)
	} else {
		fetchNBI(c, name, p, old, request{amo: op, off: uint64(s.at(i)), a: word(v)})
	}
}

// fetchNBI sends a request whose reply is stored at *old by the time Quiet returns.
func fetchNBI[T ExtAMO](c *Ctx, name string, p *peer, old *T, r request) {
	if ch := c.channel(name, p); ch != nil {
		r.op, r.width = opAtomic, uint8(sizeOf[T]())
		c.fail(name, p, ch.fetchTo(&r, bytesAt(old)))
	}
}
