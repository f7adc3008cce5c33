package bounce

import "math/bits"

// blocks divides an area into blocks whose sizes are powers of two, from
// minQueue to maxQueue, by the buddy method.
type blocks struct {
	base        int // where the area begins
	total, used int // bytes
	free        [orders][]int
	// state has the order of each free block, by its offset from base, a multiple of its size. An
	// entry in free counts only if it agrees, since a block that merged leaves its entry behind.
	state map[int]int
}

const (
	minOrder = 11
	orders   = 14 // 2 KiB to 16 MiB
)

// newBlocks returns the area from the first page that begins at first or behind it, to total.
func newBlocks(first, total int) *blocks {
	b := &blocks{state: map[int]int{}, base: (first + page - 1) &^ (page - 1)}
	b.total = max(0, total-b.base) &^ (minQueue - 1)
	// Blocks are released from the end, so that low offsets are allocated first.
	for end := b.total; end > 0; {
		size := min(maxQueue, end&-end)
		end -= size
		b.put(end, orderOf(size))
	}
	return b
}

func orderOf(size int) int { return bits.Len(uint(size-1)) - minOrder }

func (b *blocks) put(off, order int) {
	b.free[order] = append(b.free[order], off)
	b.state[off] = order
}

// alloc allocates a block of size bytes, a power of two.
func (b *blocks) alloc(size int) (off int, ok bool) {
	want := orderOf(size)
	for order := want; order < orders; order++ {
		for n := len(b.free[order]); n > 0; n = len(b.free[order]) {
			off = b.free[order][n-1]
			b.free[order] = b.free[order][:n-1]
			if o, ok := b.state[off]; !ok || o != order {
				continue
			}
			delete(b.state, off)
			for order > want { // give the upper halves back
				order--
				b.put(off+minQueue<<order, order)
			}
			b.used += size
			return b.base + off, true
		}
	}
	return 0, false
}

// release frees a block. It returns the size of the free block of which it is now a
// part.
func (b *blocks) release(off, size int) (free int) {
	b.used -= size
	off -= b.base
	order := orderOf(size)
	for order < orders-1 {
		buddy := off ^ minQueue<<order
		if o, ok := b.state[buddy]; !ok || o != order {
			break
		}
		delete(b.state, buddy)
		off = min(off, buddy)
		order++
	}
	b.put(off, order)
	return minQueue << order
}
