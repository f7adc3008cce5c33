package shmem

import (
	"context"
	"fmt"
)

// Collect copies src of all PEs into dst of all PEs, one behind the other in the order of
// the PEs, like shmem_collect. Each PE may pass another src, of any length; the zero Sym
// is one without elements. dst and src do not overlap.
//
// Each PE sends each other a message that says where its elements are and how many, so
// that all know the places. Then it goes on as FCollect does.
func Collect[T Elem](ctx context.Context, t *Team, dst, src Sym[T]) error {
	begin(t, dst, src)
	if t.w.opts.debug {
		if err := same(ctx, t, callCollect, dst, src, src.n, 0, 0); err != nil {
			return err
		}
	}
	if err := t.begun(); err != nil {
		return err
	}
	b := blocks[T]{ends: make([]int, len(t.pes)), src: make([]Sym[T], len(t.pes))}
	var odd error
	err := t.agree(ctx, words{uint64(src.n), uint64(src.off)}, func(pe int, w words) {
		if e := b.add(t, pe, w); e != nil && odd == nil {
			odd = e
		}
	})
	if err = t.leave(err); err != nil {
		return err
	}
	if odd != nil {
		return odd
	}
	// Its panics happen on all PEs alike, since all know the same total.
	total := b.ends[len(b.ends)-1]
	dst.room(total)
	for _, s := range b.src {
		apart(dst, s, total, s.n, false)
	}
	if err := t.begun(); err != nil {
		return err
	}
	return t.leave(gather(ctx, t, dst, src, b))
}

// add notes the block of PE pe: w[0] elements at offset w[1] of its heap. It returns an
// error if they are not within the heap.
func (b *blocks[T]) add(t *Team, pe int, w words) error {
	end := 0
	if pe > 0 {
		end = b.ends[pe-1]
	}
	size, limit := uint64(sizeOf[T]()), uint64(t.w.heap.size)
	if w[0] > 0 && (w[1] < uint64(t.w.heap.objects) || w[1] > limit || w[0] > (limit-w[1])/size || w[1]%uint64(alignOf[T]()) != 0) {
		return fmt.Errorf("%w: PE %d has %d elements at offset %d, in a heap of %d bytes", ErrMismatch, t.pes[pe], w[0], w[1], limit)
	}
	n := int(w[0])
	b.src[pe] = Sym[T]{t.w, uintptr(w[1]), n}
	b.ends[pe] = end + n
	b.longest = max(b.longest, n)
	return nil
}

// FCollect is Collect where all PEs pass the same src, like shmem_fcollect.
//
// Small: each PE sends its block to each other PE as a message.
//
// Large, on one host: each PE steps to each, gets the others' blocks and steps back.
//
// Where hosts form a ring or a line: the PEs, in the order of their hosts, pass the
// blocks on around, each to the next one only. That one first steps back to say that
// its dst may be written.
//
// Otherwise each PE steps to each to say so, and puts its block to each.
func FCollect[T Elem](ctx context.Context, t *Team, dst, src Sym[T]) error {
	begin(t, dst, src)
	n := src.n
	t.each(n, dst.n)
	apart(dst, src, n*len(t.pes), n, false)
	if t.w.opts.debug {
		if err := same(ctx, t, callFCollect, dst, src, n, 0, 0); err != nil {
			return err
		}
	}
	if err := t.begun(); err != nil {
		return err
	}
	return t.leave(gather(ctx, t, dst, src, blocks[T]{n: n, longest: n}))
}

// blocks are the places of the PEs' blocks in dst.
type blocks[T Elem] struct {
	n       int      // elements of each block, if they are alike and ends is nil
	ends    []int    // end of each block, if lengths differ
	src     []Sym[T] // what each PE passes, if lengths differ
	longest int
}

// of returns the place of a PE's block.
func (b *blocks[T]) of(pe int) (from, to int) {
	switch {
	case b.ends == nil:
		return pe * b.n, (pe + 1) * b.n
	case pe == 0:
		return 0, b.ends[0]
	}
	return b.ends[pe-1], b.ends[pe]
}

func gather[T Elem](ctx context.Context, t *Team, dst, src Sym[T], b blocks[T]) error {
	if b.longest == 0 {
		return nil
	}
	from, to := b.of(t.me)
	mine := src.Local()[:to-from]
	copyElems(dst.Slice(from, to).Local(), mine)
	switch {
	case fits[T](b.longest):
		return gatherSmall(ctx, t, dst, mine, &b)
	case t.oneHost:
		return gatherGet(ctx, t, dst, src, &b)
	case t.chained:
		return gatherRing(ctx, t, dst, &b)
	}
	return gatherPut(ctx, t, dst, mine, &b)
}

func gatherSmall[T Elem](ctx context.Context, t *Team, dst Sym[T], mine []T, b *blocks[T]) error {
	if err := sendAll(ctx, t, mine); err != nil {
		return err
	}
	for i := 1; i < len(t.pes); i++ {
		pe := t.next(i)
		from, to := b.of(pe)
		v, err := receive[T](ctx, t, pe, to-from)
		if err != nil {
			return err
		}
		keep(dst.Slice(from, to), v)
		t.took(pe)
	}
	return nil
}

func gatherGet[T Elem](ctx context.Context, t *Team, dst, src Sym[T], b *blocks[T]) error {
	t.stepAll()
	for i := 1; i < len(t.pes); i++ {
		pe := t.next(i)
		if err := t.await(ctx, pe); err != nil {
			return err
		}
		from, to := b.of(pe)
		if b.src != nil {
			src = b.src[pe]
		}
		Get(t.ctx, dst.Slice(from, to).Local(), src, pe)
		t.step(pe)
	}
	return t.awaitAll(ctx)
}

func gatherPut[T Elem](ctx context.Context, t *Team, dst Sym[T], mine []T, b *blocks[T]) error {
	t.stepAll()
	from, to := b.of(t.me)
	for i := 1; i < len(t.pes); i++ {
		pe := t.next(i)
		if err := t.await(ctx, pe); err != nil {
			return err
		}
		Put(t.ctx, dst.Slice(from, to), mine, pe)
		t.step(pe)
	}
	return t.awaitAll(ctx)
}

// gatherRing passes blocks on around the ring. Only the PE before this one writes
// to this one's dst. The block it writes is never the one that this PE passes on
// meanwhile.
func gatherRing[T Elem](ctx context.Context, t *Team, dst Sym[T], b *blocks[T]) error {
	n := len(t.pes)
	before, after := t.ring[(t.place+n-1)%n], t.ring[(t.place+1)%n]
	t.step(before)
	if err := t.await(ctx, after); err != nil {
		return err
	}
	for i := range n - 1 {
		from, to := b.of(t.ring[(t.place+n-i)%n])
		Put(t.ctx, dst.Slice(from, to), dst.Slice(from, to).Local(), after)
		t.step(after)
		if err := t.await(ctx, before); err != nil {
			return err
		}
	}
	return nil
}

// AlltoAll copies block j of PE i's src to block i of PE j's dst, for all i and j,
// like shmem_alltoall. src has one block for each PE, all of the same length: it panics if
// src cannot be divided so. dst and src do not overlap.
//
// Small: as messages.
//
// Large, on one host: each PE steps to each, gets its blocks and steps back.
//
// Otherwise each PE steps to each, to say that its dst may be written, and puts its
// blocks.
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
	n := t.block(src.n, srcStride)
	apart(dst, src, t.span(n, dstStride, dst.n), t.span(n, srcStride, src.n), false)
	if t.w.opts.debug {
		if err := same(ctx, t, what, dst, src, n, dstStride, srcStride); err != nil {
			return err
		}
	}
	if err := t.begun(); err != nil {
		return err
	}
	if n == 0 {
		return t.leave(nil)
	}
	x := exchange[T]{dst, src, dstStride, srcStride, n}
	x.own(t)
	switch {
	case fits[T](n):
		return t.leave(x.small(ctx, t))
	case t.oneHost:
		return t.leave(x.get(ctx, t))
	}
	return t.leave(x.put(ctx, t))
}

// exchange is one AlltoAll or AlltoAllS.
type exchange[T Elem] struct {
	dst, src             Sym[T]
	dstStride, srcStride int
	n                    int
}

// from and to return where a PE's block begins, in src and in dst.
func (x *exchange[T]) from(pe int) Sym[T] { return x.src.From(pe * x.n * x.srcStride) }
func (x *exchange[T]) to(pe int) Sym[T]   { return x.dst.From(pe * x.n * x.dstStride) }

// spread copies n elements from one stride to another.
func spread[T Elem](dst []T, dstStride int, src []T, srcStride, n int) {
	if dstStride == 1 && srcStride == 1 {
		copyElems(dst, src[:n])
		return
	}
	for i := range n {
		dst[i*dstStride] = src[i*srcStride]
	}
}

// own copies this PE's block for itself.
func (x *exchange[T]) own(t *Team) {
	spread(x.to(t.me).Local(), x.dstStride, x.from(t.me).Local(), x.srcStride, x.n)
}

func (x *exchange[T]) small(ctx context.Context, t *Team) error {
	buf := scratch[T](t, x.n)
	for i := 1; i < len(t.pes); i++ {
		pe := t.next(i)
		spread(buf, 1, x.from(pe).Local(), x.srcStride, x.n)
		if err := send(ctx, t, pe, buf); err != nil {
			return err
		}
	}
	for i := 1; i < len(t.pes); i++ {
		pe := t.next(i)
		v, err := receive[T](ctx, t, pe, x.n)
		if err != nil {
			return err
		}
		spread(x.to(pe).Local(), x.dstStride, v, 1, x.n)
		t.took(pe)
	}
	return nil
}

func (x *exchange[T]) get(ctx context.Context, t *Team) error {
	t.stepAll()
	for i := 1; i < len(t.pes); i++ {
		pe := t.next(i)
		if err := t.await(ctx, pe); err != nil {
			return err
		}
		if x.dstStride == 1 && x.srcStride == 1 {
			Get(t.ctx, x.to(pe).Local()[:x.n], x.from(t.me), pe)
		} else {
			IGet(t.ctx, x.to(pe).Local(), x.dstStride, x.from(t.me), x.srcStride, x.n, pe)
		}
		t.step(pe)
	}
	return t.awaitAll(ctx)
}

func (x *exchange[T]) put(ctx context.Context, t *Team) error {
	t.stepAll()
	for i := 1; i < len(t.pes); i++ {
		pe := t.next(i)
		if err := t.await(ctx, pe); err != nil {
			return err
		}
		if x.dstStride == 1 && x.srcStride == 1 {
			Put(t.ctx, x.to(t.me), x.from(pe).Local()[:x.n], pe)
		} else {
			IPut(t.ctx, x.to(t.me), x.dstStride, x.from(pe).Local(), x.srcStride, x.n, pe)
		}
		t.step(pe)
	}
	return t.awaitAll(ctx)
}
