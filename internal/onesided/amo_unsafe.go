package onesided

import (
	"unsafe"

	"github.com/ntbnet/ntbnet/internal/symheap"
)

// Atomic memory operations on words of 4 or 8 bytes. On a PE whose heap is mapped they are
// the processor's atomic instructions. For any other PE they are requests; its server
// executes the same instructions, and replies to those that fetch. So all are atomic with
// each other, whichever way each takes.
//
// Those that do not fetch return before they are done; Quiet waits for them. If the fabric
// fails, those that fetch return 0, and the failure is recorded.

var fetchNames = [...]string{
	symheap.Fetch: "atomic fetch", symheap.Swap: "atomic swap", symheap.CompareSwap: "atomic compare-and-swap",
	symheap.Add: "atomic fetch-add", symheap.And: "atomic fetch-and", symheap.Or: "atomic fetch-or",
	symheap.Xor: "atomic fetch-xor",
}

var doNames = [...]string{
	symheap.Set: "atomic set", symheap.Add: "atomic add", symheap.And: "atomic and", symheap.Or: "atomic or",
	symheap.Xor: "atomic xor",
}

// AtomicFetch returns word i at PE pe.
func (c *Ctx) AtomicFetch(o Object, i int, size uintptr, pe int) uint64 {
	p, off := c.peer(o.Space, pe), o.at(i, size)
	if base := p.base.Load(); base != nil {
		return symheap.AtomicLoad(base, off, size)
	}
	return c.fetchFar(symheap.Fetch, p, off, size, 0, 0)
}

// FetchAdd adds v and returns what was there.
func (c *Ctx) FetchAdd(o Object, i int, size uintptr, v uint64, pe int) uint64 {
	p, off := c.peer(o.Space, pe), o.at(i, size)
	if base := p.base.Load(); base != nil {
		old := symheap.AtomicAdd(base, off, size, v)
		p.Stored()
		return old
	}
	return c.fetchFar(symheap.Add, p, off, size, v, 0)
}

// Fetch does any operation but Set with v, and returns what was there. CompareSwap stores v if cond is there.
func (c *Ctx) Fetch(op symheap.Op, o Object, i int, size uintptr, v, cond uint64, pe int) uint64 {
	p, off := c.peer(o.Space, pe), o.at(i, size)
	if base := p.base.Load(); base != nil {
		old := symheap.Atomic(base, off, op, size, v, cond)
		if op != symheap.Fetch {
			p.Stored()
		}
		return old
	}
	return c.fetchFar(op, p, off, size, v, cond)
}

// Do does Set, Add, And, Or or Xor with v.
func (c *Ctx) Do(op symheap.Op, o Object, i int, size uintptr, v uint64, pe int) {
	p, off := c.peer(o.Space, pe), o.at(i, size)
	if base := p.base.Load(); base != nil {
		symheap.Atomic(base, off, op, size, v, 0)
		p.Stored()
		return
	}
	if ch := c.channel(doNames[op], p); ch != nil {
		c.fail(doNames[op], p, ch.Do(op, off, size, v, 0))
	}
}

// FetchNBI does an operation that fetches, and stores what was there at old, at the latest
// when Quiet has returned.
func (c *Ctx) FetchNBI(old unsafe.Pointer, op symheap.Op, o Object, i int, size uintptr, v, cond uint64, pe int) {
	p, off := c.peer(o.Space, pe), o.at(i, size)
	if base := p.base.Load(); base != nil {
		was := symheap.Atomic(base, off, op, size, v, cond)
		if op != symheap.Fetch {
			p.Stored()
		}
		symheap.SetElement(old, size, was, 0)
		return
	}
	if ch := c.channel(fetchNames[op], p); ch != nil {
		c.fail(fetchNames[op], p, ch.FetchTo(unsafe.Slice((*byte)(old), size), op, off, v, cond))
	}
}

func (c *Ctx) fetchFar(op symheap.Op, p *Peer, off, size uintptr, v, cond uint64) uint64 {
	ch := c.channel(fetchNames[op], p)
	if ch == nil {
		return 0
	}
	old, err := ch.Fetch(op, off, size, v, cond)
	c.fail(fetchNames[op], p, err)
	return old
}
