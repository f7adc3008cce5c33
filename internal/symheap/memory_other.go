//go:build !linux

package symheap

import (
	"context"
	"errors"
	"os"
)

// CanMap says that nothing here maps the memory of other processes.
const CanMap = false

// Memory is a heap.
type Memory struct {
	Bytes []byte
}

func NewMapped(int) (*Memory, error) { return nil, errors.ErrUnsupported }

// File returns nil.
func (m *Memory) File() (f *os.File, at int64) { return nil, 0 }

func Map(*os.File, int, uint64) (*Memory, error) { return nil, errors.ErrUnsupported }

func NewIn(context.Context, *os.File, int64, int, int, uint64) (*Memory, error) {
	return nil, errors.ErrUnsupported
}

func MapIn(*os.File, int64, int, uint64) (*Memory, error) { return nil, errors.ErrUnsupported }

func (m *Memory) inCore(int) {}

func (m *Memory) Close() { m.Bytes = nil }

// plain returns memory of Go's own.
func plain(b []byte) *Memory { return &Memory{Bytes: b} }
