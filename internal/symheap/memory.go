package symheap

import (
	"math/bits"
	"os"
	"sync"
)

// Alignments of heaps in memory. No object can be aligned to more than its heap is.
const (
	MaxAlign = 1 << 30
	// GoAlign is for heaps that are Go memory, where addresses are scarcer.
	GoAlign = 2 << 20
)

// alignment returns the alignment of a heap of size bytes. A larger one is of no use,
// since no object of the heap could begin there.
func alignment(size int) int { return min(MaxAlign, 1<<(bits.Len(uint(size))-1)) }

// Memory is a heap, or a mapping of one.
type Memory struct {
	Bytes []byte
	file  *os.File // nil for a mapping of another PE's heap, and for memory of Go's own
	at    int64    // where it begins in its file
	maps  bool     // Bytes are a mapping
}

// File returns the file of a heap that others can map, nil if there is none, and where the heap begins in it.
func (m *Memory) File() (f *os.File, at int64) { return m.file, m.at }

// Close ends the mapping, and then gives up its place in the file.
func (m *Memory) Close() {
	if m.maps {
		unmapFile(m.Bytes)
	}
	m.Bytes = nil
	if m.file != nil {
		m.file.Close()
	}
}

// mark writes the heap's token: random, not 0.
func (m *Memory) mark(token uint64) { Store8(&m.Bytes[0], TokenAt, token) }

// goHeaps are the heaps of PEs of this process that are Go memory, by token.
var goHeaps sync.Map // of uint64 to []byte

// NewGo allocates a heap of Go memory, which the race detector sees, for PEs of
// one process.
func NewGo(size int, token uint64) *Memory {
	m := &Memory{Bytes: alignedBytes(size, min(GoAlign, alignment(size)))}
	m.mark(token)
	goHeaps.Store(token, m.Bytes)
	return m
}

// FindGo finds the heap of a PE of this process by its token.
func FindGo(token uint64) *Memory {
	b, ok := goHeaps.Load(token)
	if !ok {
		return nil
	}
	return &Memory{Bytes: b.([]byte)}
}

// ForgetGo ends that FindGo finds a heap.
func ForgetGo(token uint64) { goHeaps.Delete(token) }
