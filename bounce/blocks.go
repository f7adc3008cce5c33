package bounce

import "math/bits"

// blocks divides an area into blocks whose sizes are powers of two, from
// minQueue to maxQueue, by the buddy method. Offsets are multiples of the size.
type blocks struct {
	total, used int // bytes
	free        [orders][]int
	// state has the order of each free block, by its offset. An entry in free
	// counts only if it agrees, since a block that merged leaves its entry behind.
	state map[int]int
}

const (
	minOrder = 11
	orders   = 14 // 2 KiB to 16 MiB
)

// newBlocks returns an area of [0, total), of which the part below first is taken.
func newBlocks(first, total int) *blocks {
	b := &blocks{state: map[int]int{}}
	// Blocks are released from the end, so that low offsets are allocated first.
	first = (first + minQueue - 1) &^ (minQueue - 1)
	for end := total &^ (minQueue - 1); end > first; {
		size := min(maxQueue, end&-end)
		for end-size < first {
			size /= 2
		}
		end -= size
		b.put(end, orderOf(size))
		b.total += size
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
			return off, true
		}
	}
	return 0, false
}

// release frees a block. It returns the size of the free block of which it is now a
// part.
func (b *blocks) release(off, size int) (free int) {
	b.used -= size
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
