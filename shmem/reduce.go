package shmem

import "context"

// Reductions: element i of dst of all PEs becomes element i of src of PE 0, combined
// with that of PE 1, then with that of PE 2, and so on. The order is always this, so
// sums of floating-point numbers are the same with any algorithm, fabric and run. dst
// and src may be the same object.
//
// Small: each PE sends its elements to each other PE as a message, and combines all.
//
// Large, on one host: the elements are divided among the PEs. All step to all. Each PE
// combines its part of all PEs' src, reading it there, stores it into all PEs' dst, and
// steps to all. Only it reads or writes that part of any PE, so dst may be src.
//
// Large otherwise: as on one host, but nothing is read from other PEs. Elements are
// taken in segments. All step to all, to say that dst may be written. Each PE puts to
// each other PE the part of its src that the other one is to combine. dst has room for
// just that: as many parts as PEs. All step to all. Each PE combines its parts, apart
// from dst, and steps to all: dst may be written again. It puts the result to all, and
// steps to all. If dst is src, each PE copies its src first. The remainder of the
// division by the number of PEs goes in messages.

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
	return reduce(ctx, t, callAndReduce, dst, src, And[T])
}

// OrReduce combines by bitwise or, like shmem_or_reduce.
func OrReduce[T Integer](ctx context.Context, t *Team, dst, src Sym[T]) error {
	return reduce(ctx, t, callOrReduce, dst, src, Or[T])
}

// XorReduce combines by bitwise exclusive or, like shmem_xor_reduce.
func XorReduce[T Integer](ctx context.Context, t *Team, dst, src Sym[T]) error {
	return reduce(ctx, t, callXorReduce, dst, src, Xor[T])
}

// MinReduce takes the least element, like shmem_min_reduce. A NaN makes it NaN.
func MinReduce[T Real](ctx context.Context, t *Team, dst, src Sym[T]) error {
	return reduce(ctx, t, callMinReduce, dst, src, Min[T])
}

// MaxReduce takes the greatest element, like shmem_max_reduce. A NaN makes it NaN.
func MaxReduce[T Real](ctx context.Context, t *Team, dst, src Sym[T]) error {
	return reduce(ctx, t, callMaxReduce, dst, src, Max[T])
}

// SumReduce adds, like shmem_sum_reduce. Integers wrap.
func SumReduce[T Elem](ctx context.Context, t *Team, dst, src Sym[T]) error {
	return reduce(ctx, t, callSumReduce, dst, src, Sum[T])
}

// ProdReduce multiplies, like shmem_prod_reduce. Integers wrap.
func ProdReduce[T Elem](ctx context.Context, t *Team, dst, src Sym[T]) error {
	return reduce(ctx, t, callProdReduce, dst, src, Prod[T])
}

func reduce[T Elem](ctx context.Context, t *Team, what call, dst, src Sym[T], fold Op[T]) error {
	begin(t, dst, src)
	n := src.n
	dst.room(n)
	apart(dst, src, n, n, true)
	if t.w.opts.debug {
		if err := same(ctx, t, what, dst, src, n, 0, 0); err != nil {
			return err
		}
	}
	if err := t.begun(); err != nil {
		return err
	}
	return t.leave(reduceAll(ctx, t, dst, src, n, fold))
}

// reduceAll reduces n elements in the way that suits their number. The caller holds the
// team's mu.
func reduceAll[T Elem](ctx context.Context, t *Team, dst, src Sym[T], n int, fold Op[T]) error {
	switch {
	case n == 0:
		return nil
	case len(t.pes) == 1:
		copy(dst.Local(), src.Local()[:n])
		return nil
	case fits[T](n):
		return reduceSmall(ctx, t, dst, src, n, fold)
	case t.oneHost:
		return reduceGet(ctx, t, dst, src, n, fold)
	}
	return reducePut(ctx, t, dst, src, n, fold)
}

func reduceSmall[T Elem](ctx context.Context, t *Team, dst, src Sym[T], n int, fold Op[T]) error {
	own := src.Local()[:n]
	if err := sendAll(ctx, t, own); err != nil {
		return err
	}
	acc := scratch[T](t, n)
	for pe := range t.pes {
		v := own
		if pe != t.me {
			var err error
			if v, err = receive[T](ctx, t, pe, n); err != nil {
				return err
			}
		}
		combine(acc, v, pe, fold)
		if pe != t.me {
			t.took(pe)
		}
	}
	keep(dst, acc)
	return nil
}

// combine adds what PE pe has to acc.
func combine[T Elem](acc, v []T, pe int, fold Op[T]) {
	if pe == 0 {
		copy(acc, v)
	} else {
		fold(acc, v)
	}
}

// chunkBytes is how much of its part a PE combines at a time. A chunk stays in the
// nearest cache.
const chunkBytes = 8 << 10

func reduceGet[T Elem](ctx context.Context, t *Team, dst, src Sym[T], n int, fold Op[T]) error {
	t.stepAll()
	if err := t.awaitAll(ctx); err != nil {
		return err
	}
	// Parts are whole cache lines.
	line := int(areaLine / sizeOf[T]())
	part := (n + len(t.pes)*line - 1) / (len(t.pes) * line) * line
	last := min((t.me+1)*part, n)
	chunk := chunkBytes / int(sizeOf[T]())
	for at := min(t.me*part, n); at < last; at += chunk {
		to := min(at+chunk, last)
		buf := scratch[T](t, 2*(to-at))
		acc, other := buf[:to-at], buf[to-at:]
		for pe := range t.pes {
			combine(acc, view(t, src.Slice(at, to), other, pe), pe, fold)
		}
		for i := range t.pes {
			Put(t.ctx, dst.Slice(at, to), acc, t.next(i))
		}
	}
	t.stepAll()
	return t.awaitAll(ctx)
}
