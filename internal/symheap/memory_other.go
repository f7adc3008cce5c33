//go:build !linux

package symheap

import "errors"

// CanMap says that nothing here maps the memory of other processes.
const CanMap = false

// Memory is a heap.
type Memory struct {
	Bytes []byte
}

func NewMapped(int) (*Memory, error) { return nil, errors.ErrUnsupported }

// FD returns -1.
func (m *Memory) FD() int { return -1 }

func Map(fd, size int, token uint64) (*Memory, error) { return nil, errors.ErrUnsupported }

func (m *Memory) Close() { m.Bytes = nil }

// plain returns memory of Go's own.
func plain(b []byte) *Memory { return &Memory{Bytes: b} }
