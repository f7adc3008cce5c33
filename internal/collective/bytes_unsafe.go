package collective

import "unsafe"

// bytesOf returns the memory of words.
func bytesOf(w []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(w))), 8*len(w))
}

// scratch returns n bytes of the team's own memory, aligned to 8. It is valid until the next
// call. The caller holds the team's mu.
func (t *Team) scratch(n int) []byte {
	words := (n + 7) / 8
	if len(t.buf) < words {
		t.buf = make([]uint64, max(words, messageWords))
	}
	return bytesOf(t.buf)[:n]
}
