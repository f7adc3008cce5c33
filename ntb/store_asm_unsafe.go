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

// flush makes stores to a bridge arrive before those that follow, write-combining ones
// too: SFENCE, or DMB ST, which counts for observers across PCIe as well.
func flush()

// drain is flush, and earlier stores have left the CPU when it returns: SFENCE, or DSB ST.
func drain()

// fence is a full barrier: later loads are made only after earlier stores are
// visible to the other CPUs, and to observers across PCIe. On amd64 it is a locked ADD to
// the stack, which does what MFENCE does and is faster. On arm64 it is DMB SY: one of the
// inner shareable domain would not cover what is behind a bridge.
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
