package onesided

import (
	"fmt"
	"unsafe"

	"github.com/ntbnet/ntbnet/internal/activemsg"
	"github.com/ntbnet/ntbnet/internal/symheap"
)

// Remote memory access. To a PE whose heap is mapped, a put is a copy, or one store for one
// element, and a load of the arm word there. A get is a copy. To any other PE, a put is a
// request followed by its bytes, and a get is a request that the PE answers. A long get is
// cut into requests of up to 64 KiB, which are under way together. Requests to a PE are done
// in their order. Where a part of its heap is a window, a put there is stores, see window_unsafe.go.
//
// src and dst point to n elements of size bytes each, in this PE's memory. A put returns
// when src may be used again. Fence and Quiet ensure that it has arrived.

// Put copies n elements to the beginning of o at PE pe.
func (c *Ctx) Put(o Object, src unsafe.Pointer, n int, size uintptr, pe int) {
	p := c.peer(o.Space, pe)
	if n > o.N {
		BadRoom(n, o.N)
	}
	if base := p.base.Load(); base != nil {
		if n == 1 && size == 8 {
			symheap.Store8(base, o.Off, *(*uint64)(src))
		} else {
			symheap.Put(base, o.Off, src, n, size)
		}
		p.Stored()
		return
	}
	c.putFar(p, o.Off, unsafe.Slice((*byte)(src), uintptr(n)*size))
}

// putFar does a put to a PE that is not mapped.
func (c *Ctx) putFar(p *Peer, off uintptr, b []byte) {
	if len(b) == 0 {
		return
	}
	if ch := c.channel("put", p); ch != nil && !p.store(off, unsafe.Pointer(&b[0]), symheap.Strided{N: 1, Block: len(b), Size: 1}) {
		c.fail("put", p, ch.Put(off, b))
	}
}

// PutBytes is Put of bytes at an offset of p's heap, for work areas and parts of objects
// that the caller has checked.
func (c *Ctx) PutBytes(p *Peer, off uintptr, b []byte) {
	if base := p.base.Load(); base != nil {
		symheap.Copy(symheap.Bytes(base, off, uintptr(len(b))), b)
		p.Stored()
		return
	}
	c.putFar(p, off, b)
}

// GetBytes is Get of bytes at an offset of p's heap that the caller has checked.
func (c *Ctx) GetBytes(dst []byte, p *Peer, off uintptr) {
	if base := p.base.Load(); base != nil {
		symheap.Copy(dst, symheap.Bytes(base, off, uintptr(len(dst))))
		return
	}
	c.getFar(p, off, dst, true)
}

// Get copies n elements from the beginning of o at PE pe.
func (c *Ctx) Get(dst unsafe.Pointer, n int, o Object, size uintptr, pe int) {
	p := c.peer(o.Space, pe)
	if n > o.N {
		BadRoom(n, o.N)
	}
	if base := p.base.Load(); base != nil {
		if n == 1 && size == 8 {
			*(*uint64)(dst) = symheap.Load8(base, o.Off)
		} else {
			symheap.Get(dst, base, o.Off, n, size)
		}
		return
	}
	c.getFar(p, o.Off, unsafe.Slice((*byte)(dst), uintptr(n)*size), true)
}

// GetNBI is Get whose dst is filled when Quiet has returned.
func (c *Ctx) GetNBI(dst unsafe.Pointer, n int, o Object, size uintptr, pe int) {
	if p := c.peer(o.Space, pe); n > o.N || p.base.Load() != nil {
		c.Get(dst, n, o, size, pe)
	} else {
		c.getFar(p, o.Off, unsafe.Slice((*byte)(dst), uintptr(n)*size), false)
	}
}

// getFar does a get by requests. It waits for the replies only if wait is true.
func (c *Ctx) getFar(p *Peer, off uintptr, b []byte, wait bool) {
	if ch := c.channel("get", p); ch != nil {
		c.fail("get", p, ch.Get(off, b, wait))
	}
}

// P stores one element, see symheap.Store for lo and hi. A PE that waits for the element
// there never sees half of it, if it has 8 bytes or less.
func (c *Ctx) P(o Object, i int, size uintptr, lo, hi uint64, pe int) {
	p := c.peer(o.Space, pe)
	off := o.at(i, size)
	if base := p.base.Load(); base != nil {
		if size == 8 {
			symheap.Store8(base, off, lo)
		} else {
			symheap.Store(base, off, size, lo, hi)
		}
		p.Stored()
		return
	}
	c.pFar(p, off, size, lo, hi)
}

func (c *Ctx) pFar(p *Peer, off, size uintptr, lo, hi uint64) {
	if ch := c.channel("p", p); ch != nil && !p.storeWord(off, size, lo, hi, false) {
		b := [2]uint64{lo, hi}
		c.fail("p", p, ch.PutShort(off, unsafe.Slice((*byte)(unsafe.Pointer(&b)), size)))
	}
}

// G returns one element, as symheap.Load does. If the fabric fails, it is 0, and the
// failure is recorded.
func (c *Ctx) G(o Object, i int, size uintptr, pe int) (lo, hi uint64) {
	p := c.peer(o.Space, pe)
	off := o.at(i, size)
	if base := p.base.Load(); base != nil {
		if size == 8 {
			return symheap.Load8(base, off), 0
		}
		return symheap.Load(base, off, size)
	}
	lo, hi, err := c.gFar(p, off, size)
	c.fail("g", p, err)
	return lo, hi
}

// TryG is like G, but returns the error of this call, and does not record it.
func (c *Ctx) TryG(o Object, i int, size uintptr, pe int) (lo, hi uint64, err error) {
	p := c.peer(o.Space, pe)
	off := o.at(i, size)
	if base := p.base.Load(); base != nil {
		lo, hi = symheap.Load(base, off, size)
		return lo, hi, nil
	}
	lo, hi, err = c.gFar(p, off, size)
	if err != nil {
		err = c.space.opError("g", p.pe, err)
	}
	return lo, hi, err
}

func (c *Ctx) gFar(p *Peer, off, size uintptr) (lo, hi uint64, err error) {
	ch, err := c.reach(p)
	if err != nil {
		return 0, 0, err
	}
	return ch.Load(off, size)
}

// PutStrided copies blocks of have elements at src to o at PE pe.
func (c *Ctx) PutStrided(o Object, src unsafe.Pointer, have int, s symheap.Strided, pe int) {
	p := c.peer(o.Space, pe)
	checkStrides(&s, o.N, s.Remote, have, s.Local)
	if s.N == 0 {
		return
	}
	if base := p.base.Load(); base != nil {
		symheap.PutStrided(base, o.Off, src, s)
		p.Stored()
		return
	}
	if ch := c.channel("iput", p); ch != nil && !p.store(o.Off, src, s) {
		c.fail("iput", p, ch.PutStrided(o.Off, unsafe.Slice((*byte)(src), uintptr(have)*s.Size), blocksOf(s)))
	}
}

// GetStrided copies blocks of o at PE pe to room elements at dst.
func (c *Ctx) GetStrided(dst unsafe.Pointer, room int, o Object, s symheap.Strided, pe int) {
	p := c.peer(o.Space, pe)
	checkStrides(&s, room, s.Local, o.N, s.Remote)
	if s.N == 0 {
		return
	}
	if base := p.base.Load(); base != nil {
		symheap.GetStrided(dst, base, o.Off, s)
		return
	}
	if ch := c.channel("iget", p); ch != nil {
		c.fail("iget", p, ch.GetStrided(o.Off, unsafe.Slice((*byte)(dst), uintptr(room)*s.Size), blocksOf(s)))
	}
}

func blocksOf(s symheap.Strided) activemsg.Blocks {
	size := int(s.Size)
	return activemsg.Blocks{N: s.N, Bytes: s.Block * size, Remote: s.Remote * size, Local: s.Local * size}
}

// checkStrides panics if blocks do not fit into dst elements, or are not among src ones.
// With one block the stride has no effect and may be of any size, so it sets another.
func checkStrides(s *symheap.Strided, dst, dstStride, src, srcStride int) {
	n, block := s.N, s.Block
	if n < 0 || block < 1 || dstStride < block || srcStride < block {
		panic(fmt.Sprintf("shmem: %d blocks of %d elements, %d and %d apart", n, block, dstStride, srcStride))
	}
	if n > 0 && (block > dst || n-1 > (dst-block)/dstStride) {
		panic(fmt.Sprintf("shmem: %d blocks of %d elements, %d apart, do not fit into %d", n, block, dstStride, dst))
	}
	if n > 0 && (block > src || n-1 > (src-block)/srcStride) {
		panic(fmt.Sprintf("shmem: %d blocks of %d elements, %d apart, are wanted from %d", n, block, srcStride, src))
	}
	if n == 1 {
		s.Remote, s.Local = block, block
	}
}
