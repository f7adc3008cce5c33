package shmem

import (
	"sync"

	"github.com/ntbnet/ntbnet/ntb"
)

// heapFile says where the heap of a PE is, for those that can map it.
type heapFile struct {
	PID   int    `json:"pid"`
	FD    int    `json:"fd"` // -1: it cannot be mapped
	Dev   uint64 `json:"dev"`
	Inode uint64 `json:"inode"`
	Token uint64 `json:"token"` // of a heap within a process, not 0
}

// goHeaps are the heaps of PEs of this process that are Go memory, by token.
var goHeaps = struct {
	mu  sync.Mutex
	all map[uint64]*memory // guarded by mu
}{all: map[uint64]*memory{}}

// goMemory makes a heap of Go memory, which the race detector sees, for PEs of one
// process.
func goMemory(size int, token uint64) *memory {
	m := plainMemory(ntb.AlignedBytes(size))
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
