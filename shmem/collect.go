package shmem

import "context"

// Collect copies src of all PEs into dst of all PEs, one behind the other in the order of
// the PEs, like shmem_collect. Each PE may pass another src, of any length; the zero Sym
// is one without elements. dst and src do not overlap.
func Collect[T Elem](ctx context.Context, t *Team, dst, src Sym[T]) error {
	return t.untyped().Collect(ctx, dst.o, src.o, sizeOf[T]())
}

// FCollect is Collect where all PEs pass the same src, like shmem_fcollect.
func FCollect[T Elem](ctx context.Context, t *Team, dst, src Sym[T]) error {
	return t.untyped().FCollect(ctx, dst.o, src.o, sizeOf[T]())
}

// AlltoAll copies block j of PE i's src to block i of PE j's dst, for all i and j,
// like shmem_alltoall. src has one block for each PE, all of the same length: it panics if
// src cannot be divided so. dst and src do not overlap.
func AlltoAll[T Elem](ctx context.Context, t *Team, dst, src Sym[T]) error {
	return t.untyped().AlltoAll(ctx, dst.o, src.o, sizeOf[T]())
}

// AlltoAllS is AlltoAll of elements that lie dstStride apart in dst and srcStride in
// src, like shmem_alltoalls. Strides are at least 1. The elements of src are 0, srcStride,
// and so on. With n of them in a block, block k begins at element k*n*stride.
func AlltoAllS[T Elem](ctx context.Context, t *Team, dst, src Sym[T], dstStride, srcStride int) error {
	return t.untyped().AlltoAllS(ctx, dst.o, src.o, sizeOf[T](), dstStride, srcStride)
}
