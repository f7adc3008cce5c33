//go:build (amd64 || arm64) && !race

package ntb

import "unsafe"

// publish64 is one aligned store, ordered after all earlier stores of this CPU: MOV
// on amd64, STLR on arm64. A store of sync/atomic would be a locked exchange on
// amd64, which reads across the bridge.
//
//go:noescape
func publish64(p unsafe.Pointer, v uint64)

//go:noescape
func publish32(p unsafe.Pointer, v uint32)

// flush empties the CPU's write-combining buffers: SFENCE, or DMB OSHST.
func flush()

// fence is a full barrier: later loads are made only after earlier stores are
// visible to the other CPUs. On amd64 it is a locked ADD, which does what MFENCE
// does and is faster.
func fence()

// pause is a hint to the CPU that this is a spin loop.
func pause()

// prefetch asks for a cache line.
//
//go:noescape
func prefetch(p unsafe.Pointer)

// copyWide copies n bytes by 8-byte stores where dst is aligned, so that a bridge
// sees few transactions. The built-in copy promises no width and may store single
// bytes.
//
//go:noescape
func copyWide(dst, src unsafe.Pointer, n uintptr)
