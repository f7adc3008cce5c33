package shmem

import "fmt"

// Sym is a symmetric object: an array of T at the same offset of every PE's heap.
// It is a value, the same on every PE. It may be copied, and sliced like a slice.
// The zero Sym has no elements. Alloc makes one.
type Sym[T Elem] struct {
	w   *World
	off uintptr // bytes from the beginning of the heap
	n   int     // elements
}

// Len returns the number of elements.
func (s Sym[T]) Len() int { return s.n }

// Offset returns where the object begins, in bytes from the beginning of the heap,
// the same on every PE.
func (s Sym[T]) Offset() int { return int(s.off) }

// Slice returns elements i to j-1. It panics unless 0 <= i <= j <= Len.
func (s Sym[T]) Slice(i, j int) Sym[T] {
	if i < 0 || j < i || j > s.n {
		panic(fmt.Sprintf("shmem: slice [%d:%d] of an object of %d elements", i, j, s.n))
	}
	return Sym[T]{s.w, s.off + uintptr(i)*sizeOf[T](), j - i}
}

// From returns the elements from i on.
func (s Sym[T]) From(i int) Sym[T] { return s.Slice(i, s.n) }

// Local returns this PE's own copy of the object. It is valid until the object is
// freed or the World closed. What other PEs write to it appears there at any time.
// The package comment says when it may be read.
func (s Sym[T]) Local() []T {
	if s.n == 0 {
		return nil
	}
	s.w.check()
	return elems[T](s.w.heap.base, s.off, s.n)
}

// Ptr returns the copy of PE pe, if that is mapped here, like shmem_ptr. It is
// valid as long as the result of Local.
func (s Sym[T]) Ptr(pe int) ([]T, bool) {
	if s.n == 0 {
		return nil, false
	}
	s.w.check()
	base := s.w.peer(pe).base.Load()
	if base == nil {
		return nil, false
	}
	return elems[T](base, s.off, s.n), true
}

// The following methods use the default context of the World. So Quiet and Err of World.Ctx
// complete them and report their failures, and a barrier completes them too.

// Put copies src to the beginning of the object at PE pe. See the function Put.
func (s Sym[T]) Put(src []T, pe int) { Put(s.ctx(), s, src, pe) }

// Get copies the beginning of the object at PE pe to dst. See the function Get.
func (s Sym[T]) Get(dst []T, pe int) { Get(s.ctx(), dst, s, pe) }

// PutNBI is Put that may read src until Quiet returns. See the function PutNBI.
func (s Sym[T]) PutNBI(src []T, pe int) { PutNBI(s.ctx(), s, src, pe) }

// GetNBI is Get whose dst is filled when Quiet has returned. See the function GetNBI.
func (s Sym[T]) GetNBI(dst []T, pe int) { GetNBI(s.ctx(), dst, s, pe) }

// P stores v in element i at PE pe. See the function P.
func (s Sym[T]) P(i int, v T, pe int) { P(s.ctx(), s, i, v, pe) }

// G returns element i at PE pe. See the function G.
func (s Sym[T]) G(i, pe int) T { return G(s.ctx(), s, i, pe) }

// TryG is like G, but returns the error of this call. See the function TryG.
func (s Sym[T]) TryG(i, pe int) (T, error) { return TryG(s.ctx(), s, i, pe) }

// ctx returns the default context. It panics for the zero Sym, which has none.
func (s Sym[T]) ctx() *Ctx {
	if s.w == nil {
		badSym()
	}
	return s.w.ctx
}

// local returns the address of element i here.
func (s Sym[T]) local(i int) *T {
	off := s.at(i)
	s.w.check()
	return elem[T](s.w.heap.base, off)
}

// room panics unless n elements fit.
func (s Sym[T]) room(n int) {
	if n > s.n {
		badRoom(n, s.n)
	}
}

// These functions are separate, and not inlined, so that their callers can be.

//go:noinline
func badIndex(i, n int) { panic(fmt.Sprintf("shmem: index %d of an object of %d elements", i, n)) }

//go:noinline
func badSym() { panic(noWorld) }

//go:noinline
func badWorld() { panic("shmem: object of another World") }

//go:noinline
func badRoom(n, have int) {
	panic(fmt.Sprintf("shmem: %d elements do not fit into an object of %d", n, have))
}

//go:noinline
func badPE(pe, n int) { panic(fmt.Sprintf("shmem: PE %d of %d", pe, n)) }
