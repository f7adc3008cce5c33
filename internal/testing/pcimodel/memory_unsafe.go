package pcimodel

import (
	"sync/atomic"
	"unsafe"
)

// Ones returns what a read of size bytes returns that nobody answers.
func Ones(size int) uint64 { return ^uint64(0) >> (64 - 8*size) }

// Store stores a value into 1, 2, 4 or 8 bytes. Aligned words are stored whole, behind all that was stored
// before.
func Store(p []byte, v uint64) {
	switch at := unsafe.Pointer(&p[0]); {
	case len(p) == 8 && uintptr(at)%8 == 0:
		atomic.StoreUint64((*uint64)(at), v)
	case len(p) == 4 && uintptr(at)%4 == 0:
		atomic.StoreUint32((*uint32)(at), uint32(v))
	default:
		for i := range p {
			p[i] = byte(v >> (8 * i))
		}
	}
}

// Load loads 1, 2, 4 or 8 bytes, aligned words whole.
func Load(p []byte) (v uint64) {
	switch at := unsafe.Pointer(&p[0]); {
	case len(p) == 8 && uintptr(at)%8 == 0:
		return atomic.LoadUint64((*uint64)(at))
	case len(p) == 4 && uintptr(at)%4 == 0:
		return uint64(atomic.LoadUint32((*uint32)(at)))
	default:
		for i := range p {
			v |= uint64(p[i]) << (8 * i)
		}
		return v
	}
}
