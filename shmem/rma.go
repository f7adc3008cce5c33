package shmem

import "fmt"

// Remote memory access: chapter 9.5 of the specification.
//
// To a PE whose heap is mapped, a put is a copy, or one store for one element, and a
// load of the arm word there. A get is a copy. To any other PE, a put is a request
// followed by its bytes, and a get is a request that the PE answers. A long get is cut
// into requests of up to 64 KiB, which are under way together. Requests to a PE are done
// in their order.
//
// A put returns when src may be used again. Fence and Quiet ensure that it has
// arrived.

// Put copies src to the beginning of dst at PE pe, like shmem_put.
//
// It panics if src does not fit or there is no such PE. A failure of the fabric is
// recorded in c, see Quiet. Then perhaps nothing was stored.
func Put[T Elem](c *Ctx, dst Sym[T], src []T, pe int) {
	p := c.peer(dst.w, pe)
	if len(src) > dst.n {
		badRoom(len(src), dst.n)
	}
	if base := p.base.Load(); base != nil {
		put(base, dst.off, src)
		p.stored()
		return
	}
	putFar(c, p, dst.off, bytesOf(src))
}

// putFar does a put by requests.
func putFar(c *Ctx, p *peer, off uintptr, b []byte) {
	if len(b) == 0 {
		return
	}
	if ch := c.channel("put", p); ch != nil {
		c.fail("put", p, ch.doLong(&request{op: opPut, off: uint64(off), a: uint64(len(b))}, b))
	}
}

// Get copies the beginning of src at PE pe to dst, like shmem_get. If the fabric
// fails, dst is left as it was, at least in part, and the failure is recorded in c.
func Get[T Elem](c *Ctx, dst []T, src Sym[T], pe int) {
	p := c.peer(src.w, pe)
	if len(dst) > src.n {
		badRoom(len(dst), src.n)
	}
	if base := p.base.Load(); base != nil {
		get(base, src.off, dst)
		return
	}
	getFar(c, p, src.off, bytesOf(dst), true)
}

// getFar does a get by requests. It waits for the replies only if wait is true.
func getFar(c *Ctx, p *peer, off uintptr, b []byte, wait bool) {
	ch := c.channel("get", p)
	if ch == nil {
		return
	}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	err := ch.get(off, b)
	if err == nil && wait {
		err = ch.drain(0)
	}
	c.fail("get", p, err)
}

// P stores v in element i of dst at PE pe, like shmem_p. A PE that waits for the
// element there never sees half of v, if v has 8 bytes or less.
func P[T Elem](c *Ctx, dst Sym[T], i int, v T, pe int) {
	p := c.peer(dst.w, pe)
	off := dst.at(i)
	if base := p.base.Load(); base != nil {
		store(elem[T](base, off), v)
		p.stored()
		return
	}
	pFar(c, p, off, v)
}

func pFar[T Elem](c *Ctx, p *peer, off uintptr, v T) {
	if ch := c.channel("p", p); ch != nil {
		b := bytesAt(&v)
		c.fail("p", p, ch.do(&request{op: opPut, off: uint64(off), a: uint64(len(b))}, b))
	}
}

// G returns element i of src at PE pe, like shmem_g. If the fabric fails, G returns
// 0 and records the failure in c. See Ctx.Err and TryG.
func G[T Elem](c *Ctx, src Sym[T], i, pe int) T {
	p := c.peer(src.w, pe)
	off := src.at(i)
	if base := p.base.Load(); base != nil {
		return load(elem[T](base, off))
	}
	return gFar[T](c, p, off)
}

func gFar[T Elem](c *Ctx, p *peer, off uintptr) T {
	v, err := tryFar[T](c, p, off)
	c.fail("g", p, err)
	return v
}

func tryFar[T Elem](c *Ctx, p *peer, off uintptr) (v T, err error) {
	ch, err := c.reach(p)
	if err == nil {
		b := bytesAt(&v)
		err = ch.fetch(&request{op: opGet, off: uint64(off), a: uint64(len(b))}, b)
	}
	return v, err
}

// TryG is like G, but returns the error of this call, an *OpError, and does not
// record it in c.
func TryG[T Elem](c *Ctx, src Sym[T], i, pe int) (T, error) {
	p := c.peer(src.w, pe)
	off := src.at(i)
	if base := p.base.Load(); base != nil {
		return load(elem[T](base, off)), nil
	}
	v, err := tryFar[T](c, p, off)
	if err != nil {
		return v, c.failure("g", p, err)
	}
	return v, nil
}

// PutNBI is Put that may read src until Quiet returns, like shmem_put_nbi. This
// implementation does not.
func PutNBI[T Elem](c *Ctx, dst Sym[T], src []T, pe int) { Put(c, dst, src, pe) }

// GetNBI is Get whose dst is filled when Quiet has returned, like shmem_get_nbi.
func GetNBI[T Elem](c *Ctx, dst []T, src Sym[T], pe int) {
	p := c.peer(src.w, pe)
	if len(dst) > src.n {
		badRoom(len(dst), src.n)
	}
	if base := p.base.Load(); base != nil {
		get(base, src.off, dst)
		return
	}
	getFar(c, p, src.off, bytesOf(dst), false)
}

// IPut copies n elements of src, srcStride apart, to elements of dst at PE pe that
// lie dstStride apart, like shmem_iput. Strides are in elements, at least 1.
func IPut[T Elem](c *Ctx, dst Sym[T], dstStride int, src []T, srcStride, n, pe int) {
	IBPut(c, dst, dstStride, src, srcStride, 1, n, pe)
}

// IGet copies n elements of src at PE pe, srcStride apart, to elements of dst that
// lie dstStride apart, like shmem_iget.
func IGet[T Elem](c *Ctx, dst []T, dstStride int, src Sym[T], srcStride, n, pe int) {
	IBGet(c, dst, dstStride, src, srcStride, 1, n, pe)
}

// IBPut is IPut of n blocks of block elements each, like shmem_ibput of version
// 1.6. Strides count from the beginning of one block to that of the next, and are
// at least block.
func IBPut[T Elem](c *Ctx, dst Sym[T], dstStride int, src []T, srcStride, block, n, pe int) {
	p := c.peer(dst.w, pe)
	dstStride, srcStride = checkStrides(dst.n, dstStride, len(src), srcStride, block, n)
	if base := p.base.Load(); base != nil && n > 0 {
		to := elems[T](base, dst.off, dst.n)
		if block == 1 {
			for i := range n {
				store(&to[i*dstStride], src[i*srcStride])
			}
		} else {
			for i := range n {
				copy(to[i*dstStride:], src[i*srcStride:i*srcStride+block])
			}
		}
		p.stored()
		return
	}
	iputFar(c, p, dst, dstStride, src, srcStride, block, n)
}

// farBlocks returns how many blocks go with one request.
func farBlocks[T Elem](block, n int) int {
	return min(n, max(1, maxGet/(block*int(sizeOf[T]()))))
}

// iputFar gathers blocks and sends them together.
func iputFar[T Elem](c *Ctx, p *peer, dst Sym[T], dstStride int, src []T, srcStride, block, n int) {
	size := int(sizeOf[T]())
	if block*size > maxGet { // each long block is a put of its own
		for i := range n {
			putFar(c, p, dst.at(i*dstStride), bytesOf(src[i*srcStride:i*srcStride+block]))
		}
		return
	}
	if n == 0 {
		return
	}
	ch := c.channel("iput", p)
	if ch == nil {
		return
	}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	for i := 0; i < n; {
		k := farBlocks[T](block, n-i)
		buf := ch.blocks[:0]
		for j := i; j < i+k; j++ {
			buf = append(buf, bytesOf(src[j*srcStride:j*srcStride+block])...)
		}
		ch.blocks = buf
		r := request{op: opPutStrided, off: uint64(dst.at(i * dstStride)), a: uint64(block * size), b: uint64(dstStride * size), c: uint64(k)}
		c.fail("iput", p, ch.long(&r, buf))
		i += k
	}
}

// IBGet is IGet of n blocks, like shmem_ibget of version 1.6.
func IBGet[T Elem](c *Ctx, dst []T, dstStride int, src Sym[T], srcStride, block, n, pe int) {
	p := c.peer(src.w, pe)
	dstStride, srcStride = checkStrides(len(dst), dstStride, src.n, srcStride, block, n)
	if base := p.base.Load(); base != nil && n > 0 {
		from := elems[T](base, src.off, src.n)
		if block == 1 {
			for i := range n {
				dst[i*dstStride] = load(&from[i*srcStride])
			}
			return
		}
		for i := range n {
			copy(dst[i*dstStride:i*dstStride+block], from[i*srcStride:])
		}
		return
	}
	igetFar(c, p, dst, dstStride, src, srcStride, block, n)
}

// igetFar asks for several blocks at once. They are scattered as they arrive.
func igetFar[T Elem](c *Ctx, p *peer, dst []T, dstStride int, src Sym[T], srcStride, block, n int) {
	size := int(sizeOf[T]())
	if block*size > maxGet {
		for i := range n {
			getFar(c, p, src.at(i*srcStride), bytesOf(dst[i*dstStride:i*dstStride+block]), true)
		}
		return
	}
	if n == 0 {
		return
	}
	ch := c.channel("iget", p)
	if ch == nil {
		return
	}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	for i := 0; i < n; {
		k := farBlocks[T](block, n-i)
		r := request{op: opGetStrided, off: uint64(src.at(i * srcStride)), a: uint64(block * size), b: uint64(srcStride * size), c: uint64(k)}
		to := dst[i*dstStride : (i+k-1)*dstStride+block]
		err := ch.ask(&r, reply{dst: bytesOf(to), n: k * block * size, block: block * size, stride: dstStride * size})
		if err == nil {
			err = ch.drain(0)
		}
		c.fail("iget", p, err)
		i += k
	}
}

// checkStrides panics if the arguments do not fit. It returns the strides to use.
// With one block the stride has no effect and may be of any size, so it returns
// another.
func checkStrides(dst, dstStride, src, srcStride, block, n int) (int, int) {
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
		return block, block
	}
	return dstStride, srcStride
}
