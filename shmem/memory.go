package shmem

import (
	"math/bits"

	"github.com/ntbnet/ntbnet/internal/lock"
)

// heapFile says where the heap of a PE is, for those that can map it.
type heapFile struct {
	PID   int    `json:"pid"`
	FD    int    `json:"fd"`    // -1: it cannot be mapped
	Token uint64 `json:"token"` // what is at tokenAt of the heap: random, not 0
}

// Alignments of heaps in memory. An object cannot be aligned to more than its heap's
// address is.
const (
	maxAlign = 1 << 30
	// goAlign is for heaps that are Go memory, which has no addresses to spare.
	goAlign = 2 << 20
)

// alignment is what the address of a heap of size bytes is a multiple of. More is of no
// use: no object of the heap could begin there.
func alignment(size int) int { return min(maxAlign, 1<<(bits.Len(uint(size))-1)) }

// mark writes the heap's token. Its owner does so before others are told of it.
func (m *memory) mark(token uint64) { store(word8(&m.bytes[0], tokenAt), token) }

// goHeaps are the heaps of PEs of this process that are Go memory, by token.
var goHeaps = struct {
	mu  lock.Mutex[lock.Heaps]
	all map[uint64]*memory // guarded by mu
}{all: map[uint64]*memory{}}

// goMemory makes a heap of Go memory, which the race detector sees, for PEs of one
// process.
func goMemory(size int, token uint64) *memory {
	m := plainMemory(alignedBytes(size, min(goAlign, alignment(size))))
	m.mark(token)
	goHeaps.mu.Lock()
	defer goHeaps.mu.Unlock()
	goHeaps.all[token] = m
	return m
}

// findGoMemory finds the memory of a PE of this process.
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
