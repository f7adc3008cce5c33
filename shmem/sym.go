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
func badWorld() { panic("shmem: object of another World") }

//go:noinline
func badRoom(n, have int) {
	panic(fmt.Sprintf("shmem: %d elements do not fit into an object of %d", n, have))
}

//go:noinline
func badPE(pe, n int) { panic(fmt.Sprintf("shmem: PE %d of %d", pe, n)) }
