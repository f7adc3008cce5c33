package shmem

import (
	"context"
	"fmt"

	"github.com/ntbnet/ntbnet/internal/job"
	"github.com/ntbnet/ntbnet/internal/onesided"
	"github.com/ntbnet/ntbnet/internal/symheap"
)

// ErrHeapFull reports that the symmetric heap has no room for an object. Its limit
// is an option.
var ErrHeapFull = symheap.ErrFull

// Memory management: chapter 9.3 of the specification. All calls are collective over
// all PEs, which make them in the same order with the same arguments. So all PEs find
// the same offset without exchanging it. As in debug mode, the PEs exchange their
// arguments and compare them. If ctx ends a call early, the team of all PEs is of no use
// any more, as after other collective calls.

// Alloc makes a symmetric object of n elements, like shmem_malloc. What is in it is
// not defined. It returns ErrMismatch on all PEs if they ask for different sizes, and
// ErrHeapFull on all if there is no room. n of 0 makes an object without elements.
func Alloc[T Elem](ctx context.Context, w *World, n int) (Sym[T], error) {
	return AllocAligned[T](ctx, w, symheap.LineBytes, n)
}

// AllocAligned is Alloc at an address that is a multiple of align bytes on all PEs, like
// shmem_align. align is a power of two up to 1 GiB; for PEs that share a process by a
// fabric of kind mem, more than 2 MiB is an error.
func AllocAligned[T Elem](ctx context.Context, w *World, align, n int) (Sym[T], error) {
	w.check()
	off, err := w.core.Alloc(ctx, bytesFor[T](n), align)
	if err != nil {
		return Sym[T]{}, err
	}
	return symOf[T](w, off, n), nil
}

// bytesFor returns the size of an object of n elements. It panics if there is none so
// large.
func bytesFor[T Elem](n int) uint64 {
	if n < 0 || uint64(n) > job.MaxHeap/uint64(sizeOf[T]()) {
		panic(fmt.Sprintf("shmem: object of %d elements", n))
	}
	return uint64(n) * uint64(sizeOf[T]())
}

// AllocZeroed is Alloc of zeros, like shmem_calloc.
func AllocZeroed[T Elem](ctx context.Context, w *World, n int) (Sym[T], error) {
	w.check()
	off, err := w.core.AllocZeroed(ctx, bytesFor[T](n))
	if err != nil {
		return Sym[T]{}, err
	}
	return symOf[T](w, off, n), nil
}

// Hint is a hint for AllocHints.
type Hint int

// Hints, as SHMEM_MALLOC_ATOMICS_REMOTE and SHMEM_MALLOC_SIGNAL_REMOTE.
const (
	HintAtomicsRemote Hint = 1 << iota
	HintSignalRemote
)

// AllocHints is Alloc, like shmem_malloc_with_hints. Hints have no effect, since
// all memory is alike here.
func AllocHints[T Elem](ctx context.Context, w *World, n int, _ Hint) (Sym[T], error) {
	return Alloc[T](ctx, w, n)
}

// Realloc makes the object one of n elements that begins with the same ones, like
// shmem_realloc. s is not to be used any more, unless there is an error.
func Realloc[T Elem](ctx context.Context, w *World, s Sym[T], n int) (Sym[T], error) {
	if s.w != nil && s.w != w {
		onesided.BadWorld()
	}
	made, err := Alloc[T](ctx, w, n)
	if err != nil || s.w == nil {
		return made, err
	}
	copy(made.Local(), s.Local())
	return made, Free(ctx, s)
}

// Free gives an object back, like shmem_free. It is collective, so a finalizer must
// not call it. It panics if s is not a whole object.
func Free[T Elem](ctx context.Context, s Sym[T]) error {
	if s.w == nil {
		return nil
	}
	return s.w.core.Free(ctx, s.o.Off, uint64(s.o.N)*uint64(sizeOf[T]()))
}
