//go:build !linux

package shmem

import (
	"errors"
	"runtime"
)

// canMap says that nothing here maps the memory of other processes.
const canMap = false

// memory is a heap.
type memory struct {
	bytes []byte
}

func newMemory(int) (*memory, error) { return nil, errors.ErrUnsupported }

func (m *memory) file() (f heapFile) { return f }

func mapHeap(heapFile, int) (*memory, error) { return nil, errors.ErrUnsupported }

func (m *memory) close() { m.bytes = nil }

// osYield lets another thread have this processor.
func osYield() { runtime.Gosched() }

// plainMemory returns memory of Go's own.
func plainMemory(b []byte) *memory { return &memory{bytes: b} }
