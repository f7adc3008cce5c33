package shmem

import "unsafe"

// sizeOf returns the size of T in bytes. The compiler makes a constant of it.
func sizeOf[T Elem]() uintptr { return unsafe.Sizeof(*(*T)(nil)) }

// elems returns memory as elements of type T.
func elems[T Elem](b []byte) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b))/sizeOf[T]())
}

// bytesOf returns the memory of a slice.
func bytesOf[T Elem](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), uintptr(len(s))*sizeOf[T]())
}

// element is a value of up to 16 bytes as operations take it, see symheap.Store.
type element struct{ lo, hi uint64 }

// word returns a value of 4 or 8 bytes as atomic operations take it.
func word[T ExtAMO](v T) (w uint64) {
	*(*T)(unsafe.Pointer(&w)) = v
	return w
}

// fromWord is the reverse of word.
func fromWord[T ExtAMO](w uint64) T { return *(*T)(unsafe.Pointer(&w)) }
