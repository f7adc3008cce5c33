package mplite

import "slices"

// bufferAlign keeps buffers of two PEs on cache lines of their own.
const bufferAlign = 64

// buffers allocates a PE's memory for messages on their way.
type buffers struct {
	free []extent // by offset, none next to another
}

// extent is n bytes from off on.
type extent struct{ off, n int }

func newBuffers(n int) buffers { return buffers{[]extent{{0, n}}} }

// alloc takes the first extent that is large enough, and returns false if there is
// none.
func (b *buffers) alloc(n int) (extent, bool) {
	n = (n + bufferAlign - 1) &^ (bufferAlign - 1)
	for i := range b.free {
		e := &b.free[i]
		if e.n < n {
			continue
		}
		got := extent{e.off, n}
		e.off += n
		e.n -= n
		if e.n == 0 {
			b.free = slices.Delete(b.free, i, i+1)
		}
		return got, true
	}
	return extent{}, false
}

// release gives back what alloc has returned.
func (b *buffers) release(e extent) {
	i, _ := slices.BinarySearchFunc(b.free, e.off, func(f extent, off int) int { return f.off - off })
	b.free = slices.Insert(b.free, i, e)
	if i+1 < len(b.free) && e.off+e.n == b.free[i+1].off {
		b.free[i].n += b.free[i+1].n
		b.free = slices.Delete(b.free, i+1, i+2)
	}
	if i > 0 && b.free[i-1].off+b.free[i-1].n == e.off {
		b.free[i-1].n += b.free[i].n
		b.free = slices.Delete(b.free, i, i+1)
	}
}
