package symheap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/ntbnet/ntbnet/internal/shm/memfd"
	"golang.org/x/sys/unix"
)

// CanMap says that processes of this system can map each other's heaps.
const CanMap = true

// NewMapped makes a heap that other processes can map. It takes address space at
// once, and pages as they are touched.
func NewMapped(size int, token uint64) (*Memory, error) {
	fd, err := memfd.Create("shmem-heap", int64(size))
	if err != nil {
		return nil, fmt.Errorf("symmetric heap: %w", err)
	}
	f := os.NewFile(uintptr(fd), "shmem-heap")
	b, err := mapFile(fd, 0, size)
	if err != nil {
		f.Close()
		return nil, err
	}
	m := &Memory{Bytes: b, file: f, maps: true}
	m.mark(token)
	return m, nil
}

// Map maps the heap of another PE, whose token it must have. The file may be anything. It stays the caller's.
func Map(f *os.File, size int, token uint64) (*Memory, error) {
	fd := int(f.Fd())
	if err := memfd.Check(fd, int64(size)); err != nil { // a mapping could fault
		return nil, err
	}
	return mapHeap(fd, 0, size, token)
}

// mapHeap maps a heap that begins at an offset of a file, if it has that token.
func mapHeap(fd int, at int64, size int, token uint64) (*Memory, error) {
	if err := checkToken(fd, at, token); err != nil {
		return nil, err
	}
	b, err := mapFile(fd, at, size)
	if err != nil {
		return nil, err
	}
	return &Memory{Bytes: b, maps: true}, nil
}

// checkToken refuses a heap of another token.
func checkToken(fd int, at int64, token uint64) error {
	var b [8]byte
	n, err := unix.Pread(fd, b[:], at+TokenAt)
	if err != nil || n != len(b) || token == 0 || binary.NativeEndian.Uint64(b[:]) != token {
		return errors.New("another heap than the one that is meant")
	}
	return nil
}

// inCore has core dumps of this process contain the first n bytes.
func (m *Memory) inCore(n int) {
	if m.maps {
		_ = unix.Madvise(m.Bytes[:n], unix.MADV_DODUMP)
	}
}
