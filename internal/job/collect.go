package job

import (
	"context"
	"fmt"

	"github.com/ntbnet/ntbnet/internal/collective"
	"github.com/ntbnet/ntbnet/internal/onesided"
)

// Collect copies src of all PEs into dst of all PEs, one behind the other in the order of
// the PEs. Each PE may pass another src, of any length, at a multiple of the size, or of 8
// if that is larger. dst and src do not overlap.
func (t *Team) Collect(ctx context.Context, dst, src onesided.Object, size uintptr) error {
	t.begin(dst, src)
	if err := t.enterWith(ctx, callCollect, dst, src, size, src.N, 0, 0); err != nil {
		return err
	}
	b := collective.Blocks{Ends: make([]int, len(t.pes)), Src: make([]uintptr, len(t.pes))}
	var odd error
	mine := collective.Words{uint64(src.N), uint64(src.Off)}
	err := t.engine.Agree(ctx, mine, func(pe int, w collective.Words) {
		if e := t.addBlock(&b, pe, w, size); e != nil && odd == nil {
			odd = e
		}
	})
	if err = t.engine.Leave(err); err != nil {
		return err
	}
	if odd != nil {
		return odd
	}
	// Its panics happen on all PEs alike, since all know the same total.
	total, last := b.Ends[len(b.Ends)-1]/int(size), 0
	room(dst, total)
	for pe, end := range b.Ends {
		apart(dst.Off, b.Src[pe], size, total, (end-last)/int(size), false)
		last = end
	}
	if err := t.engine.Begin(); err != nil {
		return err
	}
	return t.engine.Leave(t.engine.Gather(ctx, dst.Off, src.Off, b))
}

// addBlock notes the block of PE pe: w[0] elements at offset w[1] of its heap. It returns an
// error if they are not within the heap.
func (t *Team) addBlock(b *collective.Blocks, pe int, w collective.Words, size uintptr) error {
	end := 0
	if pe > 0 {
		end = b.Ends[pe-1]
	}
	heap := t.w.heap
	limit := uint64(heap.Size)
	if w[0] > 0 && (w[1] < uint64(heap.Objects) || w[1] > limit || w[0] > (limit-w[1])/uint64(size) || w[1]%uint64(alignOf(size)) != 0) {
		return fmt.Errorf("%w: PE %d has %d elements at offset %d, in a heap of %d bytes", ErrMismatch, t.pes[pe], w[0], w[1], limit)
	}
	n := int(w[0] * uint64(size))
	b.Src[pe], b.Ends[pe] = uintptr(w[1]), end+n
	b.Longest = max(b.Longest, n)
	return nil
}

// FCollect is Collect where all PEs pass the same src.
func (t *Team) FCollect(ctx context.Context, dst, src onesided.Object, size uintptr) error {
	t.begin(dst, src)
	n := src.N
	t.each(n, dst.N)
	apart(dst.Off, src.Off, size, n*len(t.pes), n, false)
	if err := t.enterWith(ctx, callFCollect, dst, src, size, n, 0, 0); err != nil {
		return err
	}
	bytes := n * int(size)
	return t.engine.Leave(t.engine.Gather(ctx, dst.Off, src.Off, collective.Blocks{Bytes: bytes, Longest: bytes}))
}

// AlltoAll copies block j of PE i's src to block i of PE j's dst, for all i and j. It panics if src
// has not a block for each PE, all of the same length.
func (t *Team) AlltoAll(ctx context.Context, dst, src onesided.Object, size uintptr) error {
	return t.alltoall(ctx, callAlltoAll, dst, src, size, 1, 1)
}

// AlltoAllS is AlltoAll of elements that lie dstStride apart in dst and srcStride in src. With n
// of them in a block, block k begins at element k*n*stride.
func (t *Team) AlltoAllS(ctx context.Context, dst, src onesided.Object, size uintptr, dstStride, srcStride int) error {
	return t.alltoall(ctx, callAlltoAllS, dst, src, size, dstStride, srcStride)
}

// block returns how many elements a block of src has.
func (t *Team) block(src, stride int) int {
	if stride < 1 {
		panic(badStride(stride))
	}
	all := 0
	if src > 0 {
		all = (src-1)/stride + 1
	}
	if all%len(t.pes) != 0 {
		panic(fmt.Sprintf("shmem: %d elements for %d PEs, which is not the same number for each", all, len(t.pes)))
	}
	return all / len(t.pes)
}

func badStride(stride int) string { return fmt.Sprintf("shmem: stride of %d elements", stride) }

// span returns how many elements the blocks of all PEs take, of have elements.
func (t *Team) span(n, stride, have int) int {
	if stride < 1 {
		panic(badStride(stride))
	}
	if n == 0 {
		return 0
	}
	t.each(n, (have-1)/stride+1)
	return (n*len(t.pes)-1)*stride + 1
}

func (t *Team) alltoall(ctx context.Context, what Call, dst, src onesided.Object, size uintptr, dstStride, srcStride int) error {
	t.begin(dst, src)
	n := t.block(src.N, srcStride)
	apart(dst.Off, src.Off, size, t.span(n, dstStride, dst.N), t.span(n, srcStride, src.N), false)
	if err := t.enterWith(ctx, what, dst, src, size, n, dstStride, srcStride); err != nil {
		return err
	}
	return t.engine.Leave(t.engine.AlltoAll(ctx, collective.Exchange{
		Dst: dst.Off, Src: src.Off, DstStride: dstStride, SrcStride: srcStride, N: n, Size: size,
	}))
}
