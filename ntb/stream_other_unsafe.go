//go:build !amd64 || race

package ntb

import "unsafe"

// On arm64 a non-temporal store is no more than a hint. In race builds the detector must see
// what is stored.
const streams = false

func streamLines(dst, src unsafe.Pointer, lines uintptr) { panic("ntb: no non-temporal stores here") }
