package activemsg

// Blocks are N blocks of Bytes bytes each, which lie apart: Remote bytes from one's
// beginning to the next's in the other PE's heap, and Local bytes in this PE's memory.
type Blocks struct{ N, Bytes, Remote, Local int }

// together returns how many of n blocks go with one request.
func (b *Blocks) together(n int) int { return min(n, max(1, maxGet/b.Bytes)) }

// PutStrided stores blocks of src from an offset on. They are gathered and sent together.
func (c *Channel) PutStrided(off uintptr, src []byte, b Blocks) error {
	if b.Bytes > maxGet { // each long block is a put of its own
		for i := range b.N {
			if err := c.Put(off+uintptr(i*b.Remote), src[i*b.Local:][:b.Bytes]); err != nil {
				return err
			}
		}
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := 0; i < b.N; {
		k := b.together(b.N - i)
		buf := c.blocks[:0]
		for j := i; j < i+k; j++ {
			buf = append(buf, src[j*b.Local:][:b.Bytes]...)
		}
		c.blocks = buf
		r := request{op: opPutStrided, off: uint64(off) + uint64(i*b.Remote), a: uint64(b.Bytes), b: uint64(b.Remote), c: uint64(k)}
		if err := c.long(&r, buf); err != nil {
			return err
		}
		i += k
	}
	return nil
}

// GetStrided copies blocks from an offset on to dst. Several are asked for at once, and
// scattered as they arrive.
func (c *Channel) GetStrided(off uintptr, dst []byte, b Blocks) error {
	if b.Bytes > maxGet {
		for i := range b.N {
			if err := c.Get(off+uintptr(i*b.Remote), dst[i*b.Local:][:b.Bytes], true); err != nil {
				return err
			}
		}
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := 0; i < b.N; {
		k := b.together(b.N - i)
		r := request{op: opGetStrided, off: uint64(off) + uint64(i*b.Remote), a: uint64(b.Bytes), b: uint64(b.Remote), c: uint64(k)}
		to := dst[i*b.Local : (i+k-1)*b.Local+b.Bytes]
		err := c.ask(&r, reply{dst: to, n: k * b.Bytes, block: b.Bytes, stride: b.Local})
		if err == nil {
			err = c.drain(0)
		}
		if err != nil {
			return err
		}
		i += k
	}
	return nil
}
