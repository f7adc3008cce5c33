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
	fd, err := unix.MemfdCreate("sdp-perf-limits", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, nil, fmt.Errorf("make memory file: %w", err)
	}
	f := os.NewFile(uintptr(fd), "limits")
	m, err := seal(f)
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return m, f, nil
}

func seal(f *os.File) (*Memory, error) {
	if err := f.Truncate(memorySize); err != nil {
		return nil, fmt.Errorf("size memory file: %w", err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		return nil, fmt.Errorf("seal memory file: %w", err)
	}
	return OpenMemory(f)
}

// OpenMemory maps the file that NewMemory made. It touches all pages, so that no
// measurement pays for that.
func OpenMemory(f *os.File) (*Memory, error) {
	b, err := unix.Mmap(int(f.Fd()), 0, memorySize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("map memory file: %w", err)
	}
	return newMemory(b), nil
}

// Close unmaps the memory. Nothing may use it any more.
func (m *Memory) Close() error { return unix.Munmap(m.b) }
