package activemsg

// Blocks are N blocks of Bytes bytes each, which lie apart: Remote bytes from one's
// beginning to the next's in the other PE's heap, and Local bytes in this PE's memory.
type Blocks struct{ N, Bytes, Remote, Local int }

// inParts divides blocks among requests. It calls some, with mu held, with each request, its first block and
// how many it has. A long block, or the only one, is an operation of its own, for which it calls one.
func (c *Channel) inParts(op operation, off uintptr, b Blocks, one func(i int, off uintptr) error, some func(r request, i, k int) error) error {
	if b.Bytes > maxGet || b.N == 1 {
		for i := range b.N {
			if err := one(i, off+uintptr(i*b.Remote)); err != nil {
				return err
			}
		}
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, k := 0, 0; i < b.N; i += k {
		k = min(b.N-i, max(1, maxGet/b.Bytes))
		r := request{op: op, off: uint64(off) + uint64(i*b.Remote), a: uint64(b.Bytes), b: uint64(b.Remote), c: uint64(k)}
		if err := some(r, i, k); err != nil {
			return err
		}
	}
	return nil
}

// PutStrided stores blocks of src from an offset on. They are gathered and sent together.
func (c *Channel) PutStrided(off uintptr, src []byte, b Blocks) error {
	return c.inParts(opPutStrided, off, b,
		func(i int, off uintptr) error { return c.Put(off, src[i*b.Local:][:b.Bytes]) },
		func(r request, i, k int) error {
			c.blocks = c.blocks[:0]
			for j := i; j < i+k; j++ {
				c.blocks = append(c.blocks, src[j*b.Local:][:b.Bytes]...)
			}
			return c.long(&r, c.blocks)
		})
}

// GetStrided copies blocks from an offset on to dst. Several are asked for at once, and
// scattered as they arrive.
func (c *Channel) GetStrided(off uintptr, dst []byte, b Blocks) error {
	return c.inParts(opGetStrided, off, b,
		func(i int, off uintptr) error { return c.Get(off, dst[i*b.Local:][:b.Bytes], true) },
		func(r request, i, k int) error {
			to := dst[i*b.Local : (i+k-1)*b.Local+b.Bytes]
			if err := c.ask(&r, reply{dst: to, n: k * b.Bytes, block: b.Bytes, stride: b.Local}); err != nil {
				return err
			}
			return c.drain(0)
		})
}
