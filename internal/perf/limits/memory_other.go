//go:build !linux

package limits

import (
	"os"

	"github.com/ntbnet/ntbnet/ntb"
)

// NewMemory fails with ntb.ErrNotSupported.
func NewMemory() (*Memory, *os.File, error) { return nil, nil, ntb.ErrNotSupported }

// OpenMemory fails with ntb.ErrNotSupported.
func OpenMemory(*os.File) (*Memory, error) { return nil, ntb.ErrNotSupported }

// Close does nothing.
func (m *Memory) Close() error { return nil }

// Yield fails with ntb.ErrNotSupported.
func Yield() (float64, error) { return 0, ntb.ErrNotSupported }

// Without shared memory there is nobody to wait for, to wake or to yield to.

func newShared(int) ([]byte, *os.File, error)       { return nil, nil, ntb.ErrNotSupported }
func openShared(*os.File, int) ([]byte, error)      { return nil, ntb.ErrNotSupported }
func unmap([]byte) error                            { return nil }
func yield()                                        {}
func futexWait(mem []byte, off int, whileIs uint32) {}
func futexWake(mem []byte, off int)                 {}
