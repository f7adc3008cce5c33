package limits

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// seals fix the file's size, so that neither process can make the other fault.
const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

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
	fd, err := unix.MemfdCreate("sdp-perf-limits", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, nil, fmt.Errorf("make memory file: %w", err)
	}
	f := os.NewFile(uintptr(fd), "limits")
	b, err := seal(f, size)
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return b, f, nil
}

func seal(f *os.File, size int) ([]byte, error) {
	if err := f.Truncate(int64(size)); err != nil {
		return nil, fmt.Errorf("size memory file: %w", err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		return nil, fmt.Errorf("seal memory file: %w", err)
	}
	return openShared(f, size)
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
