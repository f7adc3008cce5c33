package ntbtest

import (
	"os"
	"unsafe"
)

// misalignment returns how many bytes after a 64-byte boundary mem begins.
func misalignment(mem []byte) int {
	return int(uintptr(unsafe.Pointer(unsafe.SliceData(mem))) & 63)
}

// wholePages returns the bytes [first, end) of mem that consist of the pages wholly
// in [off, off+n). If there are none, first >= end. A mapping begins on a page, so
// pages of the file are pages of addresses.
func wholePages(mem []byte, off, n int) (first, end int) {
	page := os.Getpagesize()
	before := int(uintptr(unsafe.Pointer(unsafe.SliceData(mem))) % uintptr(page))
	first = (before+off+page-1)/page*page - before
	end = (before+off+n)/page*page - before
	return first, end
}
