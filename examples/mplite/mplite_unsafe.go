package mplite

import (
	"unsafe"

	"github.com/ntbnet/ntbnet/shmem"
)

// bytesOf returns the memory of a slice.
func bytesOf[T shmem.Elem](s []T) []byte {
	var v T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), uintptr(len(s))*unsafe.Sizeof(v))
}
