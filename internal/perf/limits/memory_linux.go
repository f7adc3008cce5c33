package limits

import (
	"fmt"
	"os"

	"github.com/ntbnet/ntbnet/internal/memfd"
	"golang.org/x/sys/unix"
)

// NewMemory makes the memory, and the file from which the other process opens it.
// The caller closes both.
func NewMemory() (*Memory, *os.File, error) {
	b, f, err := newShared(memorySize)
	if err != nil {
		return nil, nil, err
	}
	return newMemory(b), f, nil
}

// OpenMemory maps the file that NewMemory made.
func OpenMemory(f *os.File) (*Memory, error) {
	b, err := openShared(f, memorySize)
	if err != nil {
		return nil, err
	}
	return newMemory(b), nil
}

// newShared makes size bytes of memory, and the file from which other processes open it.
func newShared(size int) ([]byte, *os.File, error) {
	fd, err := memfd.Create("sdp-perf-limits", int64(size))
	if err != nil {
		return nil, nil, err
	}
	f := os.NewFile(uintptr(fd), "limits")
	b, err := openShared(f, size)
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return b, f, nil
}

// openShared maps a file of newShared. It touches all pages, so that no measurement
// pays for that.
func openShared(f *os.File, size int) ([]byte, error) {
	b, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("map memory file: %w", err)
	}
	return b, nil
}

func unmap(b []byte) error { return unix.Munmap(b) }

// Close unmaps the memory. Nothing may use it any more.
func (m *Memory) Close() error { return unmap(m.b) }
