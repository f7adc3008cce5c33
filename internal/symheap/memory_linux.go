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

// Memory is a heap, or a mapping of one.
type Memory struct {
	Bytes []byte
	file  *os.File // nil for a mapping of another PE's heap, and for memory that is not mapped
	at    int64    // where it begins in its file
	maps  bool

	borrowed bool // file is the caller's
}

// NewMapped makes a heap that other processes can map. It takes address space at
// once, and pages as they are touched.
func NewMapped(size int) (*Memory, error) {
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
	return &Memory{Bytes: b, file: f, maps: true}, nil
}

// File returns the file of a heap that others can map, nil if there is none, and where the heap begins in it.
func (m *Memory) File() (f *os.File, at int64) { return m.file, m.at }

// Map maps the heap of another PE, whose token it must have. The file may be anything. It stays the caller's.
func Map(f *os.File, size int, token uint64) (*Memory, error) {
	fd := int(f.Fd())
	if err := checkHeap(fd, size, token); err != nil {
		return nil, err
	}
	b, err := mapFile(fd, 0, size)
	if err != nil {
		return nil, err
	}
	return &Memory{Bytes: b, maps: true}, nil
}

// checkHeap refuses a file of which a mapping could fault, or that has another token.
func checkHeap(fd, size int, token uint64) error {
	if err := memfd.Check(fd, int64(size)); err != nil {
		return err
	}
	return checkToken(fd, 0, token)
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

func (m *Memory) Close() {
	if m.file != nil && !m.borrowed {
		m.file.Close()
	}
	if m.maps {
		unmapFile(m.Bytes)
	}
	m.Bytes = nil
}

// plain returns memory of Go's own.
func plain(b []byte) *Memory { return &Memory{Bytes: b} }
