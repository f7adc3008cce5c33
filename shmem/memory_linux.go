package shmem

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// canMap: processes of this system can map each other's heaps.
const canMap = true

// memory is a heap, or a mapping of one.
type memory struct {
	bytes []byte
	fd    int // of the memory file; -1: this is a mapping of another PE's heap, or not mapped memory
	maps  bool
}

// seals keep the size of a heap, so that no mapping of it can fault.
const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// newMemory makes a heap that other processes can map. It takes address space;
// pages are taken as they are touched.
func newMemory(size int) (*memory, error) {
	fd, err := unix.MemfdCreate("shmem-heap", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("make symmetric heap: %w", err)
	}
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("make symmetric heap of %d bytes: %w", size, err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("seal symmetric heap: %w", err)
	}
	b, err := mapFile(fd, size)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &memory{bytes: b, fd: fd, maps: true}, nil
}

func mapFile(fd, size int) ([]byte, error) {
	b, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("map symmetric heap of %d bytes: %w", size, err)
	}
	return b, nil
}

// file names the memory file, so that another process finds this one and no other.
func (m *memory) file() (f heapFile) {
	f.PID, f.FD = os.Getpid(), m.fd
	var st unix.Stat_t
	if m.fd >= 0 && unix.Fstat(m.fd, &st) == nil {
		f.Dev, f.Inode = uint64(st.Dev), st.Ino
	}
	return f
}

// mapHeap maps the heap of a process of this machine.
func mapHeap(f heapFile, size int) (*memory, error) {
	// What the numbers name may be anything, until we have looked.
	const how = unix.O_RDWR | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/fd/%d", f.PID, f.FD), how, 0)
	if err != nil {
		return nil, fmt.Errorf("open the heap of process %d: %w", f.PID, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("look at the heap of process %d: %w", f.PID, err)
	}
	got, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || uint64(st.Dev) != f.Dev || st.Ino != f.Inode || st.Size != int64(size) || got&seals != seals {
		return nil, fmt.Errorf("descriptor %d of process %d is not the heap that it names", f.FD, f.PID)
	}
	b, err := mapFile(fd, size)
	if err != nil {
		return nil, err
	}
	return &memory{bytes: b, fd: -1, maps: true}, nil
}

func (m *memory) close() {
	if m.fd >= 0 {
		unix.Close(m.fd)
	}
	if m.maps {
		_ = unix.Munmap(m.bytes)
	}
	m.bytes = nil
}

// osYield lets another thread have this processor.
func osYield() { unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// plainMemory is memory of Go's own.
func plainMemory(b []byte) *memory { return &memory{bytes: b, fd: -1} }
