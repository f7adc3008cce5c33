// Package symheap is the symmetric heap of a PE, which other PEs of the host may map. It
// allocates objects, and gives access by offset, bytes and element size.
//
// It does not know of PEs or of requests. Those are internal/onesided and internal/activemsg.
//
//	m, err := symheap.NewMapped(size, token)  // or NewGo, for PEs of one process
//	h := symheap.New(m, objectsAt)
//	off, err := h.Alloc(800, 64)       // the same offset on every PE
//	symheap.Store8(h.Base, off, 7)     // or the base of another PE's heap, as mapped by Map
//
// Elements have 1, 2, 4, 8 or 16 bytes. One of up to 8 bytes, at a multiple of its size, is stored
// and loaded at once. On arm64, and for the race detector, those of 4 and 8 bytes are accessed by
// sync/atomic. On amd64 plain stores do, which are seen in their order; the stores of sync/atomic
// would be locked instructions.
package symheap
