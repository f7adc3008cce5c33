package shmem

import (
	"context"
	"fmt"

	"github.com/ntbnet/ntbnet/internal/collective"
)

// Collect copies src of all PEs into dst of all PEs, one behind the other in the order of
// the PEs, like shmem_collect. Each PE may pass another src, of any length; the zero Sym
// is one without elements. dst and src do not overlap.
func Collect[T Elem](ctx context.Context, t *Team, dst, src Sym[T]) error {
	begin(t, dst, src)
	if t.w.opts.debug {
		if err := same(ctx, t, callCollect, dst, src, src.o.N, 0, 0); err != nil {
			return err
		}
	}
	if err := t.engine.Begin(); err != nil {
		return err
	}
	b := collective.Blocks{Ends: make([]int, len(t.pes)), Src: make([]uintptr, len(t.pes))}
	var odd error
	mine := collective.Words{uint64(src.o.N), uint64(src.o.Off)}
	err := t.engine.Agree(ctx, mine, func(pe int, w collective.Words) {
		if e := addBlock[T](t, &b, pe, w); e != nil && odd == nil {
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
	size := int(sizeOf[T]())
	total, last := b.Ends[len(b.Ends)-1]/size, 0
	dst.room(total)
	for pe, end := range b.Ends {
		n := (end - last) / size
		apart(dst, symOf[T](t.w, b.Src[pe], n), total, n, false)
		last = end
	}
	if err := t.engine.Begin(); err != nil {
		return err
	}
	return t.engine.Leave(t.engine.Gather(ctx, dst.o.Off, src.o.Off, b))
}

// addBlock notes the block of PE pe: w[0] elements at offset w[1] of its heap. It returns an
// error if they are not within the heap.
func addBlock[T Elem](t *Team, b *collective.Blocks, pe int, w collective.Words) error {
	end := 0
	if pe > 0 {
		end = b.Ends[pe-1]
	}
	size, heap := uint64(sizeOf[T]()), t.w.heap
	limit := uint64(heap.Size)
	if w[0] > 0 && (w[1] < uint64(heap.Objects) || w[1] > limit || w[0] > (limit-w[1])/size || w[1]%uint64(alignOf[T]()) != 0) {
		return fmt.Errorf("%w: PE %d has %d elements at offset %d, in a heap of %d bytes", ErrMismatch, t.pes[pe], w[0], w[1], limit)
	}
	n := int(w[0] * size)
	b.Src[pe], b.Ends[pe] = uintptr(w[1]), end+n
	b.Longest = max(b.Longest, n)
	return nil
}

// FCollect is Collect where all PEs pass the same src, like shmem_fcollect.
func FCollect[T Elem](ctx context.Context, t *Team, dst, src Sym[T]) error {
	begin(t, dst, src)
	n := src.o.N
	t.each(n, dst.o.N)
	apart(dst, src, n*len(t.pes), n, false)
	if t.w.opts.debug {
		if err := same(ctx, t, callFCollect, dst, src, n, 0, 0); err != nil {
			return err
		}
	}
	if err := t.engine.Begin(); err != nil {
		return err
	}
	bytes := n * int(sizeOf[T]())
	return t.engine.Leave(t.engine.Gather(ctx, dst.o.Off, src.o.Off, collective.Blocks{Bytes: bytes, Longest: bytes}))
}

// AlltoAll copies block j of PE i's src to block i of PE j's dst, for all i and j,
// like shmem_alltoall. src has one block for each PE, all of the same length: it panics if
// src cannot be divided so. dst and src do not overlap.
func AlltoAll[T Elem](ctx context.Context, t *Team, dst, src Sym[T]) error {
	return alltoall(ctx, t, callAlltoAll, dst, src, 1, 1)
}

// AlltoAllS is AlltoAll of elements that lie dstStride apart in dst and srcStride in
// src, like shmem_alltoalls. Strides are at least 1. The elements of src are 0, srcStride,
// and so on. With n of them in a block, block k begins at element k*n*stride.
func AlltoAllS[T Elem](ctx context.Context, t *Team, dst, src Sym[T], dstStride, srcStride int) error {
	return alltoall(ctx, t, callAlltoAllS, dst, src, dstStride, srcStride)
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

func alltoall[T Elem](ctx context.Context, t *Team, what call, dst, src Sym[T], dstStride, srcStride int) error {
	begin(t, dst, src)
	n := t.block(src.o.N, srcStride)
	apart(dst, src, t.span(n, dstStride, dst.o.N), t.span(n, srcStride, src.o.N), false)
	if t.w.opts.debug {
		if err := same(ctx, t, what, dst, src, n, dstStride, srcStride); err != nil {
			return err
		}
	}
	if err := t.engine.Begin(); err != nil {
		return err
	}
	return t.engine.Leave(t.engine.AlltoAll(ctx, collective.Exchange{
		Dst: dst.o.Off, Src: src.o.Off, DstStride: dstStride, SrcStride: srcStride, N: n, Size: sizeOf[T](),
	}))
}
