//go:build !linux

package symheap

import (
	"context"
	"errors"
	"os"
)

// CanMap says that nothing here maps the memory of other processes.
const CanMap = false

func NewMapped(int, uint64) (*Memory, error) { return nil, errors.ErrUnsupported }

func Map(*os.File, int, uint64) (*Memory, error) { return nil, errors.ErrUnsupported }

func NewIn(context.Context, *os.File, int64, int, int, uint64) (*Memory, error) {
	return nil, errors.ErrUnsupported
}

func MapIn(*os.File, int64, int, uint64) (*Memory, error) { return nil, errors.ErrUnsupported }

func (m *Memory) inCore(int) {}

func unmapFile([]byte) {}
