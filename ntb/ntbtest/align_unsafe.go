package ntbtest

import "unsafe"

// misalignment is how many bytes after a 64-byte boundary mem begins.
func misalignment(mem []byte) int {
	return int(uintptr(unsafe.Pointer(unsafe.SliceData(mem))) & 63)
}
