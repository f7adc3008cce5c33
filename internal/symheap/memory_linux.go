package symheap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/ntbnet/ntbnet/internal/memfd"
	"golang.org/x/sys/unix"
)

// CanMap says that processes of this system can map each other's heaps.
const CanMap = true

// Memory is a heap, or a mapping of one.
type Memory struct {
	Bytes []byte
	fd    int // of the memory file; -1 for a mapping of another PE's heap, and for memory that is not mapped
	maps  bool
}

// NewMapped makes a heap that other processes can map. It takes address space at
// once, and pages as they are touched.
func NewMapped(size int) (*Memory, error) {
	fd, err := memfd.Create("shmem-heap", int64(size))
	if err != nil {
		return nil, fmt.Errorf("symmetric heap: %w", err)
	}
	b, err := mapFile(fd, size)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &Memory{Bytes: b, fd: fd, maps: true}, nil
}

// File returns where the memory file is. The caller adds the heap's token.
func (m *Memory) File() File { return File{PID: os.Getpid(), FD: m.fd} }

// Map maps the heap of a process of this machine. The numbers in f may name anything.
// They may even name the heap of a process here that has the same numbers as the PE has
// on another host. So Map maps the file only if its token shows that it is the right
// one.
func Map(f File, size int) (*Memory, error) {
	name := fmt.Sprintf("/proc/%d/fd/%d", f.PID, f.FD)
	// To open a device may have effects. O_PATH does not open it yet.
	path, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the heap of process %d: %w", f.PID, err)
	}
	defer unix.Close(path)
	if err := checkKind(path, size); err != nil {
		return nil, fmt.Errorf("descriptor %d of process %d: %w", f.FD, f.PID, err)
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", path), unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, fmt.Errorf("open the heap of process %d: %w", f.PID, err)
	}
	defer unix.Close(fd)
	if err := checkHeap(fd, size, f.Token); err != nil {
		return nil, fmt.Errorf("descriptor %d of process %d: %w", f.FD, f.PID, err)
	}
	b, err := mapFile(fd, size)
	if err != nil {
		return nil, err
	}
	return &Memory{Bytes: b, fd: -1, maps: true}, nil
}

// checkKind refuses a file that does not consist of ordinary pages, size bytes of them.
// A file of huge pages can be sealed as well, but faults where no huge page is free.
func checkKind(fd, size int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("look at it: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return errors.New("not a regular file")
	}
	if st.Size != int64(size) {
		return fmt.Errorf("a file of %d bytes, want %d", st.Size, size)
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil || fs.Type != unix.TMPFS_MAGIC {
		return errors.New("not a file of ordinary pages")
	}
	return nil
}

// checkHeap refuses a file that could change its size, or that has another token.
func checkHeap(fd, size int, token uint64) error {
	if err := memfd.Check(fd, int64(size)); err != nil {
		return err
	}
	var b [8]byte
	n, err := unix.Pread(fd, b[:], TokenAt)
	if err != nil || n != len(b) || token == 0 || binary.NativeEndian.Uint64(b[:]) != token {
		return errors.New("another heap than the one that is meant")
	}
	return nil
}

func (m *Memory) Close() {
	if m.fd >= 0 {
		unix.Close(m.fd)
	}
	if m.maps {
		unmapFile(m.Bytes)
	}
	m.Bytes = nil
}

// plain returns memory of Go's own.
func plain(b []byte) *Memory { return &Memory{Bytes: b, fd: -1} }
