package shmem

import (
	"sync/atomic"
	"unsafe"
)

// sizeOf returns the size of T in bytes. The compiler makes a constant of it.
func sizeOf[T Elem]() uintptr {
	var v T
	return unsafe.Sizeof(v)
}

// alignOf returns the alignment of T in a heap. Numbers of 8 bytes are stored and loaded
// at once, also those of two halves, so they are aligned to 8 bytes.
func alignOf[T Elem]() uintptr {
	var v T
	if unsafe.Sizeof(v) == 8 {
		return 8
	}
	return unsafe.Alignof(v)
}

// at returns the offset of element i. It is short enough to be inlined. A call
// would store to the stack, and the locked instruction of an atomic operation waits
// for all stores before it.
func (s Sym[T]) at(i int) uintptr {
	if uint(i) >= uint(s.n) {
		badIndex(i, s.n)
	}
	return s.off + uintptr(i)*unsafe.Sizeof(*(*T)(nil))
}

// elem returns the T at an offset of a heap. The caller has checked that it lies in
// the heap.
func elem[T Elem](base *byte, off uintptr) *T {
	return (*T)(unsafe.Add(unsafe.Pointer(base), off))
}

// elems returns the n elements of type T at an offset of a heap.
func elems[T Elem](base *byte, off uintptr, n int) []T {
	return unsafe.Slice(elem[T](base, off), n)
}

// alignedBytes returns n bytes of Go memory at a multiple of align, a power of two.
func alignedBytes(n, align int) []byte {
	b := make([]byte, n+align)
	pad := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) & uintptr(align-1))
	return b[pad : pad+n : pad+n]
}

// bytesOf returns the memory of a slice.
func bytesOf[T Elem](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), uintptr(len(s))*sizeOf[T]())
}

// copyPiece is less than what Go's memmove treats as large. From 1 MiB on memmove
// bypasses the caches, which is slower where the memory is in them.
const copyPiece = 512 << 10

// put copies src to a heap. One element is one store, so that a waiter never sees
// half of it.
func put[T Elem](base *byte, off uintptr, src []T) {
	if len(src) == 1 {
		store(elem[T](base, off), src[0])
		return
	}
	copyElems(elems[T](base, off, len(src)), src)
}

// copyElems copies in pieces of at most copyPiece bytes.
func copyElems[T Elem](dst, src []T) {
	const words = copyPiece / 16 // elements of the largest type in a piece
	for len(src) > words {
		n := min(len(src), int(copyPiece/sizeOf[T]()))
		copy(dst, src[:n])
		dst, src = dst[n:], src[n:]
	}
	copy(dst, src)
}

// store stores an element at once. On arm64, and for the race detector, it is an
// atomic store for those types that have one.
func store[T Elem](p *T, v T) {
	if halves[T]() {
		var u uint64
		*(*T)(unsafe.Pointer(&u)) = v
		store((*uint64)(unsafe.Pointer(p)), u)
		return
	}
	if !plainStores {
		switch unsafe.Sizeof(v) {
		case 4:
			atomic.StoreUint32((*uint32)(unsafe.Pointer(p)), *(*uint32)(unsafe.Pointer(&v)))
			return
		case 8:
			atomic.StoreUint64((*uint64)(unsafe.Pointer(p)), *(*uint64)(unsafe.Pointer(&v)))
			return
		}
	}
	*p = v
}

// load loads an element at once, as store stores it.
func load[T Elem](p *T) (v T) {
	if halves[T]() {
		u := load((*uint64)(unsafe.Pointer(p)))
		return *(*T)(unsafe.Pointer(&u))
	}
	if !plainStores {
		switch unsafe.Sizeof(v) {
		case 4:
			*(*uint32)(unsafe.Pointer(&v)) = atomic.LoadUint32((*uint32)(unsafe.Pointer(p)))
			return v
		case 8:
			*(*uint64)(unsafe.Pointer(&v)) = atomic.LoadUint64((*uint64)(unsafe.Pointer(p)))
			return v
		}
	}
	return *p
}

// halves reports whether T is of 8 bytes that Go copies as two of 4: complex64.
func halves[T Elem]() bool {
	var v T
	return unsafe.Sizeof(v) == 8 && unsafe.Alignof(v) == 4
}

// These are the operations of sync/atomic on any type of 4 or 8 bytes.

func atomicLoad[T ExtAMO](p *T) (v T) {
	if unsafe.Sizeof(v) == 4 {
		*(*uint32)(unsafe.Pointer(&v)) = atomic.LoadUint32((*uint32)(unsafe.Pointer(p)))
	} else {
		*(*uint64)(unsafe.Pointer(&v)) = atomic.LoadUint64((*uint64)(unsafe.Pointer(p)))
	}
	return v
}

func atomicStore[T ExtAMO](p *T, v T) {
	if unsafe.Sizeof(v) == 4 {
		atomic.StoreUint32((*uint32)(unsafe.Pointer(p)), *(*uint32)(unsafe.Pointer(&v)))
	} else {
		atomic.StoreUint64((*uint64)(unsafe.Pointer(p)), *(*uint64)(unsafe.Pointer(&v)))
	}
}

func atomicSwap[T ExtAMO](p *T, v T) (old T) {
	if unsafe.Sizeof(v) == 4 {
		*(*uint32)(unsafe.Pointer(&old)) = atomic.SwapUint32((*uint32)(unsafe.Pointer(p)), *(*uint32)(unsafe.Pointer(&v)))
	} else {
		*(*uint64)(unsafe.Pointer(&old)) = atomic.SwapUint64((*uint64)(unsafe.Pointer(p)), *(*uint64)(unsafe.Pointer(&v)))
	}
	return old
}

func atomicCompareSwap[T AMO](p *T, want, v T) (old T) {
	for {
		old = atomicLoad(p)
		if old != want {
			return old
		}
		var done bool
		if unsafe.Sizeof(v) == 4 {
			done = atomic.CompareAndSwapUint32((*uint32)(unsafe.Pointer(p)), uint32(want), uint32(v))
		} else {
			done = atomic.CompareAndSwapUint64((*uint64)(unsafe.Pointer(p)), uint64(want), uint64(v))
		}
		if done {
			return old
		}
	}
}

func atomicAdd[T AMO](p *T, v T) (old T) {
	if unsafe.Sizeof(v) == 4 {
		return T(atomic.AddUint32((*uint32)(unsafe.Pointer(p)), uint32(v))) - v
	}
	return T(atomic.AddUint64((*uint64)(unsafe.Pointer(p)), uint64(v))) - v
}

func atomicAnd[T Bits](p *T, v T) (old T) {
	if unsafe.Sizeof(v) == 4 {
		return T(atomic.AndUint32((*uint32)(unsafe.Pointer(p)), uint32(v)))
	}
	return T(atomic.AndUint64((*uint64)(unsafe.Pointer(p)), uint64(v)))
}

func atomicOr[T Bits](p *T, v T) (old T) {
	if unsafe.Sizeof(v) == 4 {
		return T(atomic.OrUint32((*uint32)(unsafe.Pointer(p)), uint32(v)))
	}
	return T(atomic.OrUint64((*uint64)(unsafe.Pointer(p)), uint64(v)))
}

func atomicXor[T Bits](p *T, v T) (old T) {
	for {
		old = atomicLoad(p)
		if atomicCompareSwap(p, old, old^v) == old {
			return old
		}
	}
}

// word4 and word8 return words of a heap.
func word4(base *byte, off uintptr) *uint32 { return elem[uint32](base, off) }
func word8(base *byte, off uintptr) *uint64 { return elem[uint64](base, off) }

// get copies elements of a heap to dst. One element is one load.
func get[T Elem](base *byte, off uintptr, dst []T) {
	if len(dst) == 1 {
		dst[0] = load(elem[T](base, off))
		return
	}
	copyElems(dst, elems[T](base, off, len(dst)))
}

// word returns a value of 4 or 8 bytes as a number, for a request.
func word[T ExtAMO](v T) uint64 {
	if unsafe.Sizeof(v) == 4 {
		return uint64(*(*uint32)(unsafe.Pointer(&v)))
	}
	return *(*uint64)(unsafe.Pointer(&v))
}

// bytesAt returns the memory of one value.
func bytesAt[T Elem](p *T) []byte { return bytesOf(unsafe.Slice(p, 1)) }

// scratch returns n elements of the team's own memory. It is valid until the next
// call. The caller holds the team's mu.
func scratch[T Elem](t *Team, n int) []T {
	words := (uintptr(n)*sizeOf[T]() + 7) / 8
	if uintptr(len(t.buf)) < words {
		t.buf = make([]uint64, max(words, messageWords))
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&t.buf[0])), n)
}
