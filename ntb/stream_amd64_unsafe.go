//go:build amd64 && !race

package ntb

import "unsafe"

// streams reports whether streamLines makes non-temporal stores.
const streams = true

// streamLines copies cache lines by non-temporal stores (MOVNTDQ), which go to memory and fetch
// no line first. Then it orders them before the stores that follow (SFENCE). dst begins on a
// line.
//
//go:noescape
func streamLines(dst, src unsafe.Pointer, lines uintptr)
