package ntbtest

import (
	"os"
	"unsafe"
)

// misalignment is how many bytes after a 64-byte boundary mem begins.
func misalignment(mem []byte) int {
	return int(uintptr(unsafe.Pointer(unsafe.SliceData(mem))) & 63)
}

// wholePages returns the bytes [first, end) of mem that are the pages wholly in
// [off, off+n); there are none if first >= end. A mapping begins on a page, so
// the pages of a file are those of addresses.
func wholePages(mem []byte, off, n int) (first, end int) {
	page := os.Getpagesize()
	before := int(uintptr(unsafe.Pointer(unsafe.SliceData(mem))) % uintptr(page))
	first = (before+off+page-1)/page*page - before
	end = (before+off+n)/page*page - before
	return first, end
}
