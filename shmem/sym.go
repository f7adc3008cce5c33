package shmem

import (
	"fmt"

	"github.com/ntbnet/ntbnet/internal/onesided"
)

// Sym is a symmetric object: an array of T at the same offset of every PE's heap.
// It is a value, the same on every PE. It may be copied, and sliced like a slice.
// The zero Sym has no elements. Alloc makes one.
type Sym[T Elem] struct {
	w *World
	o onesided.Object // as the packages below know it
}

// symOf returns the object of n elements at an offset.
func symOf[T Elem](w *World, off uintptr, n int) Sym[T] {
	return Sym[T]{w, onesided.Object{Space: w.core.Space(), Off: off, N: n}}
}

// Len returns the number of elements.
func (s Sym[T]) Len() int { return s.o.N }

// Offset returns where the object begins, in bytes from the beginning of the heap,
// the same on every PE.
func (s Sym[T]) Offset() int { return int(s.o.Off) }

// Slice returns elements i to j-1. It panics unless 0 <= i <= j <= Len.
func (s Sym[T]) Slice(i, j int) Sym[T] {
	if i < 0 || j < i || j > s.o.N {
		panic(fmt.Sprintf("shmem: slice [%d:%d] of an object of %d elements", i, j, s.o.N))
	}
	return Sym[T]{s.w, s.o.Slice(i, j, sizeOf[T]())}
}

// From returns the elements from i on.
func (s Sym[T]) From(i int) Sym[T] { return s.Slice(i, s.o.N) }

// Local returns this PE's own copy of the object. It is valid until the object is
// freed or the World closed. What other PEs write to it appears there at any time.
// The package comment says when it may be read.
func (s Sym[T]) Local() []T { return elems[T](s.o.Local(sizeOf[T]())) }

// Ptr returns the copy of PE pe of the World, if that is mapped here, like shmem_ptr. For a PE by its
// number in a team, like shmem_team_ptr, Team.TranslatePE has that of the World. The result is valid as
// long as that of Local.
func (s Sym[T]) Ptr(pe int) ([]T, bool) {
	if s.o.N == 0 {
		return nil, false
	}
	s.w.check()
	b := s.o.Reached(s.w.core.Peer(pe), sizeOf[T]())
	return elems[T](b), b != nil
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
		onesided.BadSpace()
	}
	return s.w.ctx
}
