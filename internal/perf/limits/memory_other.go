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
