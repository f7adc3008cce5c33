//go:build linux

package symheap

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapFile maps size bytes of a file, from an offset on, at an address that is a multiple of alignment(size). It first
// reserves more address space than it needs, and gives the rest back. Core dumps have nothing of it, see Memory.inCore.
func mapFile(fd int, off int64, size int) ([]byte, error) {
	align := alignment(size)
	space, err := unix.MmapPtr(-1, 0, nil, uintptr(size+align), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("take address space for a symmetric heap of %d bytes: %w", size, err)
	}
	before := -uintptr(space) & uintptr(align-1)
	at := unsafe.Add(space, before)
	_, err = unix.MmapPtr(fd, off, at, uintptr(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE|unix.MAP_FIXED)
	if err != nil {
		_ = unix.MunmapPtr(space, uintptr(size+align))
		return nil, fmt.Errorf("map symmetric heap of %d bytes: %w", size, err)
	}
	if before > 0 {
		_ = unix.MunmapPtr(space, before)
	}
	end := (uintptr(size) + uintptr(os.Getpagesize()) - 1) &^ uintptr(os.Getpagesize()-1)
	if rest := uintptr(size+align) - before; rest > end {
		_ = unix.MunmapPtr(unsafe.Add(at, end), rest-end)
	}
	b := unsafe.Slice((*byte)(at), size)
	_ = unix.Madvise(b, unix.MADV_DONTDUMP)
	return b, nil
}

// unmapFile unmaps what mapFile has mapped.
func unmapFile(b []byte) {
	_ = unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(b)), uintptr(len(b)))
}
