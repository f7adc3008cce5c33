//go:build race || !(amd64 || arm64)

package ntb

import (
	"sync/atomic"
	"unsafe"
)

// In race builds the detector must see the stores, so they are those of
// sync/atomic. Other architectures have no bridge and use them too.

func publish64(p unsafe.Pointer, v uint64) { atomic.StoreUint64((*uint64)(p), v) }

func publish32(p unsafe.Pointer, v uint32) { atomic.StoreUint32((*uint32)(p), v) }

func flush() {}

func drain() {}

var fenceWord atomic.Uint32

func fence() { fenceWord.Add(1) }

func pause() {}

func prefetch(unsafe.Pointer) {}

func copyWide(dst, src unsafe.Pointer, n uintptr) {
	copy(unsafe.Slice((*byte)(dst), n), unsafe.Slice((*byte)(src), n))
}
