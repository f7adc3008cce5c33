//go:build linux

package qemupci

import (
	"sync"

	"golang.org/x/sys/unix"
)

// memory is the memory of a machine.
type memory struct {
	mu      sync.Mutex // guards the following
	files   map[file][]byte
	regions []mapped
}

// file identifies a file.
type file struct{ dev, ino uint64 }

// mapped is a region and the mapping of its whole file.
type mapped struct {
	region
	of []byte
}

// set takes the regions that the machine has, with a descriptor for each, which it closes. Mappings stay until
// close.
func (m *memory) set(regions []region, fds []int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.regions = nil
	for i, fd := range fds {
		of, err := m.mapFile(fd)
		unix.Close(fd)
		if err != nil {
			return err
		}
		m.regions = append(m.regions, mapped{regions[i], of})
	}
	return nil
}

// mapFile returns the mapping of a file. The caller holds mu.
func (m *memory) mapFile(fd int) ([]byte, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	id := file{st.Dev, st.Ino}
	if of, ok := m.files[id]; ok {
		return of, nil
	}
	of, err := unix.Mmap(fd, 0, int(st.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	if m.files == nil {
		m.files = map[file][]byte{}
	}
	m.files[id] = of
	return of, nil
}

// at returns n bytes from an address on, or nil if they are not in one region.
func (m *memory) at(address uint64, n int) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.regions {
		if address >= r.address && address-r.address < r.size && uint64(n) <= r.size-(address-r.address) {
			at := r.offset + address - r.address
			return r.of[at : at+uint64(n)]
		}
	}
	return nil
}

// close unmaps all. Nothing that at has returned is used any more.
func (m *memory) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.regions = nil
	for _, of := range m.files {
		_ = unix.Munmap(of)
	}
	m.files = nil
}
