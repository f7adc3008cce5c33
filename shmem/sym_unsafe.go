package shmem

import "unsafe"

// At returns the object of n elements at an offset that Offset has returned, perhaps
// on another PE. A C program passes symmetric addresses for that. It returns false
// if the bytes are not memory for objects, or not aligned. complex64, too, is
// aligned to 8 bytes.
func At[T Elem](w *World, off, n int) (Sym[T], bool) {
	w.check()
	o, ok := w.core.At(off, n, sizeOf[T]())
	if !ok {
		return Sym[T]{}, false
	}
	return Sym[T]{w, o}, true
}

// Find returns the symmetric object of which s is this PE's copy, so Find(w,
// x.Local()) is x. It returns false if s is other memory, or empty.
func Find[T Elem](w *World, s []T) (Sym[T], bool) {
	w.check()
	if len(s) == 0 {
		return Sym[T]{}, false
	}
	// An address below the heap wraps to a large offset.
	off := uintptr(unsafe.Pointer(unsafe.SliceData(s))) - uintptr(unsafe.Pointer(w.core.Heap().Base))
	if off >= uintptr(w.core.Heap().Size) {
		return Sym[T]{}, false
	}
	return At[T](w, int(off), len(s))
}
