//go:build linux && (amd64 || arm64)

package ntbfixed

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/ntbnet/ntbnet/internal/shm/sigbus"
	"golang.org/x/sys/unix"
)

// mapping is memory of a file, which core dumps do not have, at addresses of one session's own. The addresses stay mapped
// until unmap. What lies behind them can be exchanged, atomically for those that store and
// read meanwhile. They find zeros when the file has become shorter.
type mapping struct {
	mem   []byte
	guard sigbus.Memory
}

// mapMemory maps a part of a file: over memory that is mapped and as long, or anywhere if that is nil.
func mapMemory(m Memory, over []byte) (mapping, error) {
	flags := unix.MAP_SHARED
	if over != nil {
		flags |= unix.MAP_FIXED
	}
	p, err := unix.MmapPtr(m.FD, m.Offset, unsafe.Pointer(unsafe.SliceData(over)), uintptr(m.Len), unix.PROT_READ|unix.PROT_WRITE, flags)
	if err != nil {
		return mapping{}, fmt.Errorf("ntbfixed: map memory of %d bytes: %w", m.Len, err)
	}
	mapped := mapping{mem: unsafe.Slice((*byte)(p), m.Len)}
	mapped.noCore()
	if mapped.guard, err = sigbus.Guard(mapped.mem); err == nil {
		return mapped, nil
	}
	undo := mapped.unmap
	if over != nil {
		undo = mapped.scratch
	}
	return mapping{}, errors.Join(fmt.Errorf("ntbfixed: %w", err), undo())
}

// noCore keeps the memory out of core dumps. What is mapped over it has to be kept out too.
func (m *mapping) noCore() { _ = unix.Madvise(m.mem, unix.MADV_DONTDUMP) }

func (m *mapping) base() unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(m.mem)) }

// scratch gives the addresses scratch memory. Stores that are under way on other processors
// have arrived before, since the system waits for each to drop the old page tables.
func (m *mapping) scratch() error {
	_, err := unix.MmapPtr(-1, 0, m.base(), uintptr(len(m.mem)), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED|unix.MAP_NORESERVE)
	if err != nil {
		return fmt.Errorf("ntbfixed: map scratch memory: %w", err)
	}
	m.noCore()
	return nil
}

// keep gives the addresses a private copy of what they hold.
func (m *mapping) keep() error { return m.hold(m.mem) }

// hold gives the addresses private memory with a copy of from, which is as long.
func (m *mapping) hold(from []byte) error {
	n := uintptr(len(m.mem))
	p, err := unix.MmapPtr(-1, 0, nil, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return fmt.Errorf("ntbfixed: map a private copy: %w", err)
	}
	copy(unsafe.Slice((*byte)(p), len(m.mem)), from)
	if _, err := unix.MremapPtr(p, n, m.base(), n, unix.MREMAP_MAYMOVE|unix.MREMAP_FIXED); err != nil {
		_ = unix.MunmapPtr(p, n)
		return fmt.Errorf("ntbfixed: exchange memory: %w", err)
	}
	m.noCore()
	return nil
}

func (m *mapping) unmap() error {
	if m.mem == nil {
		return nil
	}
	m.guard.Release()
	err := unix.MunmapPtr(m.base(), uintptr(len(m.mem)))
	m.mem = nil
	if err != nil {
		return fmt.Errorf("ntbfixed: unmap memory: %w", err)
	}
	return nil
}
