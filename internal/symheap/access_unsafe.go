package symheap

import (
	"sync/atomic"
	"unsafe"
)

func word4(base *byte, off uintptr) *uint32 { return (*uint32)(unsafe.Add(unsafe.Pointer(base), off)) }
func word8(base *byte, off uintptr) *uint64 { return (*uint64)(unsafe.Add(unsafe.Pointer(base), off)) }

// Word4 returns the word of 4 bytes at an offset of a heap, for sync/atomic.
func Word4(base *byte, off uintptr) *uint32 { return word4(base, off) }

// Word8 returns the word of 8 bytes at an offset of a heap, for sync/atomic.
func Word8(base *byte, off uintptr) *uint64 { return word8(base, off) }

// Store8 stores a word at once.
func Store8(base *byte, off uintptr, v uint64) {
	if plainStores {
		*word8(base, off) = v
	} else {
		atomic.StoreUint64(word8(base, off), v)
	}
}

// Store4 stores a word at once.
func Store4(base *byte, off uintptr, v uint32) {
	if plainStores {
		*word4(base, off) = v
	} else {
		atomic.StoreUint32(word4(base, off), v)
	}
}

// Load8 loads a word at once, as Store8 stores it.
func Load8(base *byte, off uintptr) uint64 {
	if plainStores {
		return *word8(base, off)
	}
	return atomic.LoadUint64(word8(base, off))
}

// Load4 loads a word at once, as Store4 stores it.
func Load4(base *byte, off uintptr) uint32 {
	if plainStores {
		return *word4(base, off)
	}
	return atomic.LoadUint32(word4(base, off))
}

// Store stores an element of size bytes: the low ones of lo, and of 16 bytes the last 8
// from hi.
func Store(base *byte, off, size uintptr, lo, hi uint64) {
	switch size {
	case 8:
		Store8(base, off, lo)
	case 4:
		Store4(base, off, uint32(lo))
	case 2:
		*(*uint16)(unsafe.Add(unsafe.Pointer(base), off)) = uint16(lo)
	case 1:
		*(*uint8)(unsafe.Add(unsafe.Pointer(base), off)) = uint8(lo)
	default:
		*word8(base, off) = lo
		*word8(base, off+8) = hi
	}
}

// Load loads an element, as Store stores it.
func Load(base *byte, off, size uintptr) (lo, hi uint64) {
	switch size {
	case 8:
		return Load8(base, off), 0
	case 4:
		return uint64(Load4(base, off)), 0
	case 2:
		return uint64(*(*uint16)(unsafe.Add(unsafe.Pointer(base), off))), 0
	case 1:
		return uint64(*(*uint8)(unsafe.Add(unsafe.Pointer(base), off))), 0
	}
	return *word8(base, off), *word8(base, off+8)
}

// Element returns the element of size bytes at p, as Store takes it.
func Element(p unsafe.Pointer, size uintptr) (lo, hi uint64) {
	switch size {
	case 8:
		return *(*uint64)(p), 0
	case 4:
		return uint64(*(*uint32)(p)), 0
	case 2:
		return uint64(*(*uint16)(p)), 0
	case 1:
		return uint64(*(*uint8)(p)), 0
	}
	return *(*uint64)(p), *(*uint64)(unsafe.Add(p, 8))
}

// SetElement stores an element of size bytes at p, in memory of this PE's own.
func SetElement(p unsafe.Pointer, size uintptr, lo, hi uint64) {
	switch size {
	case 8:
		*(*uint64)(p) = lo
	case 4:
		*(*uint32)(p) = uint32(lo)
	case 2:
		*(*uint16)(p) = uint16(lo)
	case 1:
		*(*uint8)(p) = uint8(lo)
	default:
		*(*uint64)(p), *(*uint64)(unsafe.Add(p, 8)) = lo, hi
	}
}

// Bytes returns n bytes at an offset of a heap.
func Bytes(base *byte, off, n uintptr) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(base), off)), n)
}

// copyPiece is less than what Go's memmove treats as large. From 1 MiB on memmove
// bypasses the caches, which is slower where the memory is in them.
const copyPiece = 512 << 10

// Copy copies src to dst, of the same length, in pieces of at most copyPiece bytes.
func Copy(dst, src []byte) {
	for len(src) > copyPiece {
		copy(dst, src[:copyPiece])
		dst, src = dst[copyPiece:], src[copyPiece:]
	}
	copy(dst, src)
}

// Put copies n elements of size bytes to a heap. One element is one store, so that a
// waiter never sees half of it.
func Put(base *byte, off uintptr, src unsafe.Pointer, n int, size uintptr) {
	if n == 1 {
		lo, hi := Element(src, size)
		Store(base, off, size, lo, hi)
		return
	}
	Copy(Bytes(base, off, uintptr(n)*size), unsafe.Slice((*byte)(src), uintptr(n)*size))
}

// Get copies n elements of size bytes of a heap. One element is one load.
func Get(dst unsafe.Pointer, base *byte, off uintptr, n int, size uintptr) {
	if n == 1 {
		lo, hi := Load(base, off, size)
		SetElement(dst, size, lo, hi)
		return
	}
	Copy(unsafe.Slice((*byte)(dst), uintptr(n)*size), Bytes(base, off, uintptr(n)*size))
}

// Strided are blocks of elements that lie apart, in a heap and in this PE's own memory.
type Strided struct {
	N, Block      int     // blocks, and elements of each
	Remote, Local int     // elements from one block's beginning to the next's
	Size          uintptr // bytes of an element
}

// PutStrided copies blocks to a heap. Single elements are single stores.
func PutStrided(base *byte, off uintptr, src unsafe.Pointer, s Strided) {
	if s.Block == 1 && s.Size == 8 {
		for i := range s.N {
			Store8(base, off+8*uintptr(i*s.Remote), *(*uint64)(unsafe.Add(src, 8*i*s.Local)))
		}
		return
	}
	for i := range s.N {
		Put(base, off+uintptr(i*s.Remote)*s.Size, unsafe.Add(src, uintptr(i*s.Local)*s.Size), s.Block, s.Size)
	}
}

// GetStrided copies blocks of a heap. Single elements are single loads.
func GetStrided(dst unsafe.Pointer, base *byte, off uintptr, s Strided) {
	if s.Block == 1 && s.Size == 8 {
		for i := range s.N {
			*(*uint64)(unsafe.Add(dst, 8*i*s.Local)) = Load8(base, off+8*uintptr(i*s.Remote))
		}
		return
	}
	for i := range s.N {
		Get(unsafe.Add(dst, uintptr(i*s.Local)*s.Size), base, off+uintptr(i*s.Remote)*s.Size, s.Block, s.Size)
	}
}

// alignedBytes returns n bytes of Go memory at a multiple of align, a power of two.
func alignedBytes(n, align int) []byte {
	b := make([]byte, n+align)
	pad := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) & uintptr(align-1))
	return b[pad : pad+n : pad+n]
}
