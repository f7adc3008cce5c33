package ntb

import (
	"sync/atomic"
	"unsafe"
)

// Load64 reads the 8 bytes at off, a multiple of 8, of memory that the peer writes.
// It pairs with the peer's Publish64: what the peer stored before it is visible
// after the load. mem must begin on an 8-byte boundary.
func Load64(mem []byte, off int) uint64 {
	_ = mem[off : off+8 : len(mem)]
	return atomic.LoadUint64((*uint64)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(mem)), off)))
}

// Load32 is Load64 for 4 bytes at a multiple of 4.
func Load32(mem []byte, off int) uint32 {
	_ = mem[off : off+4 : len(mem)]
	return atomic.LoadUint32((*uint32)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(mem)), off)))
}

// Clear64 sets the 8 bytes at off of this side's own window to zero. The peer must
// not be writing there. So the owner clears memory before it grants it.
func Clear64(mem []byte, off int) {
	_ = mem[off : off+8 : len(mem)]
	atomic.StoreUint64((*uint64)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(mem)), off)), 0)
}

// AlignedBytes returns n zero bytes that begin on a 64-byte boundary of the
// heap, as a backend's windows do.
func AlignedBytes(n int) []byte {
	mem := make([]byte, n+63)
	pad := int(-uintptr(unsafe.Pointer(unsafe.SliceData(mem))) & 63)
	return mem[pad : pad+n : pad+n]
}

// Prefetch is a hint to the CPU that the cache line of mem[off] is about to be read. It
// reads nothing itself.
func Prefetch(mem []byte, off int) { prefetch(unsafe.Pointer(&mem[off])) }
