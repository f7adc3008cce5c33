package shmem

import (
	"context"

	"github.com/ntbnet/ntbnet/internal/job"
)

// Reductions: element i of dst of all PEs becomes element i of src of PE 0, combined
// with that of PE 1, then with that of PE 2, and so on. The order is always this, so
// sums of floating-point numbers are the same with any algorithm, fabric and run. dst
// and src may be the same object.

// Integer is the set of types for bitwise reductions.
type Integer interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~int |
		~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uint | ~uintptr
}

// Real is the set of types for minimum and maximum.
type Real interface {
	Integer | ~float32 | ~float64
}

// Op is an operation of a reduction. It combines each element of v with the element of
// acc that has the same index, and leaves the result in acc. acc and v have the same
// length.
type Op[T Elem] func(acc, v []T)

// And combines by bitwise and.
func And[T Integer](acc, v []T) {
	for i, v := range v {
		acc[i] &= v
	}
}

// Or combines by bitwise or.
func Or[T Integer](acc, v []T) {
	for i, v := range v {
		acc[i] |= v
	}
}

// Xor combines by bitwise exclusive or.
func Xor[T Integer](acc, v []T) {
	for i, v := range v {
		acc[i] ^= v
	}
}

// Min takes the lesser element. A NaN makes it NaN.
func Min[T Real](acc, v []T) {
	for i, v := range v {
		acc[i] = min(acc[i], v)
	}
}

// Max takes the greater element. A NaN makes it NaN.
func Max[T Real](acc, v []T) {
	for i, v := range v {
		acc[i] = max(acc[i], v)
	}
}

// Sum adds. Integers wrap.
func Sum[T Elem](acc, v []T) {
	for i, v := range v {
		acc[i] += v
	}
}

// Prod multiplies. Integers wrap.
func Prod[T Elem](acc, v []T) {
	for i, v := range v {
		acc[i] *= v
	}
}

// AndReduce combines by bitwise and, like shmem_and_reduce.
func AndReduce[T Integer](ctx context.Context, t *Team, dst, src Sym[T]) error {
	return reduce(ctx, t, job.AndReduce, dst, src, And[T])
}

// OrReduce combines by bitwise or, like shmem_or_reduce.
func OrReduce[T Integer](ctx context.Context, t *Team, dst, src Sym[T]) error {
	return reduce(ctx, t, job.OrReduce, dst, src, Or[T])
}

// XorReduce combines by bitwise exclusive or, like shmem_xor_reduce.
func XorReduce[T Integer](ctx context.Context, t *Team, dst, src Sym[T]) error {
	return reduce(ctx, t, job.XorReduce, dst, src, Xor[T])
}

// MinReduce takes the least element, like shmem_min_reduce. A NaN makes it NaN.
func MinReduce[T Real](ctx context.Context, t *Team, dst, src Sym[T]) error {
	return reduce(ctx, t, job.MinReduce, dst, src, Min[T])
}

// MaxReduce takes the greatest element, like shmem_max_reduce. A NaN makes it NaN.
func MaxReduce[T Real](ctx context.Context, t *Team, dst, src Sym[T]) error {
	return reduce(ctx, t, job.MaxReduce, dst, src, Max[T])
}

// SumReduce adds, like shmem_sum_reduce. Integers wrap.
func SumReduce[T Elem](ctx context.Context, t *Team, dst, src Sym[T]) error {
	return reduce(ctx, t, job.SumReduce, dst, src, Sum[T])
}

// ProdReduce multiplies, like shmem_prod_reduce. Integers wrap.
func ProdReduce[T Elem](ctx context.Context, t *Team, dst, src Sym[T]) error {
	return reduce(ctx, t, job.ProdReduce, dst, src, Prod[T])
}

func reduce[T Elem](ctx context.Context, t *Team, what job.Call, dst, src Sym[T], fold Op[T]) error {
	return t.untyped().Reduce(ctx, what, dst.o, src.o, sizeOf[T](), untyped(fold))
}

// untyped returns fold for the bytes of elements.
func untyped[T Elem](fold Op[T]) func(acc, v []byte) {
	return func(acc, v []byte) { fold(elems[T](acc), elems[T](v)) }
}

// SumInscan adds element i of src of the team's PEs up to this one, and leaves the sum in element i of dst here, like
// shmem_sum_inscan. dst and src may be the same object. The order of the additions is that of the PEs. Integers wrap.
func SumInscan[T Elem](ctx context.Context, t *Team, dst, src Sym[T]) error {
	return t.untyped().Scan(ctx, job.SumInscan, dst.o, src.o, sizeOf[T](), untyped(Sum[T]))
}

// SumExscan is SumInscan of the PEs before this one, like shmem_sum_exscan. At PE 0 of the team dst becomes 0.
func SumExscan[T Elem](ctx context.Context, t *Team, dst, src Sym[T]) error {
	return t.untyped().Scan(ctx, job.SumExscan, dst.o, src.o, sizeOf[T](), untyped(Sum[T]))
}
