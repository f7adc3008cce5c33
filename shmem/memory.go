package shmem

import (
	"math/bits"

	"github.com/ntbnet/ntbnet/internal/lock"
)

// heapFile says where the memory of a PE's heap is, for PEs that can map it.
type heapFile struct {
	PID   int    `json:"pid"`
	FD    int    `json:"fd"`    // -1: the heap cannot be mapped
	Token uint64 `json:"token"` // the word at tokenAt of the heap: random, not 0
}

// Alignments of heaps in memory. No object can be aligned to more than its heap is.
const (
	maxAlign = 1 << 30
	// goAlign is for heaps that are Go memory, where addresses are scarcer.
	goAlign = 2 << 20
)

// alignment returns the alignment of a heap of size bytes. A larger one is of no use,
// since no object of the heap could begin there.
func alignment(size int) int { return min(maxAlign, 1<<(bits.Len(uint(size))-1)) }

// mark writes the heap's token. Its owner calls it before others hear of the heap.
func (m *memory) mark(token uint64) { store(word8(&m.bytes[0], tokenAt), token) }

// goHeaps are the heaps of PEs of this process that are Go memory, by token.
var goHeaps = struct {
	mu  lock.Mutex[lock.Heaps]
	all map[uint64]*memory // guarded by mu
}{all: map[uint64]*memory{}}

// goMemory allocates a heap of Go memory, which the race detector sees, for PEs of
// one process.
func goMemory(size int, token uint64) *memory {
	m := plainMemory(alignedBytes(size, min(goAlign, alignment(size))))
	m.mark(token)
	goHeaps.mu.Lock()
	defer goHeaps.mu.Unlock()
	goHeaps.all[token] = m
	return m
}

// findGoMemory finds the heap of a PE of this process by its token.
func findGoMemory(token uint64) *memory {
	goHeaps.mu.Lock()
	defer goHeaps.mu.Unlock()
	m := goHeaps.all[token]
	if m == nil {
		return nil
	}
	return plainMemory(m.bytes)
}

func forgetGoMemory(token uint64) {
	goHeaps.mu.Lock()
	defer goHeaps.mu.Unlock()
	delete(goHeaps.all, token)
}
