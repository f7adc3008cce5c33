//go:build linux

package qemupci

import (
	"sync"

	"github.com/ntbnet/ntbnet/internal/testing/pcimodel"
)

// Registers of QEMU's intel-iommu (drivers/iommu/intel/iommu.h of the kernel's tree: DMAR_GSTS_REG, DMAR_RTADDR_REG).
// Where a machine has none, they read as zeros.
const (
	iommuStatus    = 0xfed9001c
	iommuRoot      = 0xfed90020
	iommuEnabled   = 1 << 31 // DMA_GSTS_TES
	iommuAddress   = 1<<52 - 1<<12
	iommuPresent   = 1
	iommuWritable  = 1 << 1
	iommuLargePage = 1 << 7
)

// iommu is what a machine's IOMMU does with addresses that functions use. It keeps no translation, so the kernel has nothing to
// invalidate.
type iommu struct {
	injector *injector
	memory   *memory

	mu      sync.Mutex // guards the following
	known   bool       // that the kernel has set the IOMMU up, until a reset
	enabled bool
	root    uint64
}

// reset forgets what the kernel has set up.
func (m *iommu) reset() {
	m.mu.Lock()
	m.known = false
	m.mu.Unlock()
}

// look returns the table of roots, or reports that there is no translation. The first call waits for QEMU, by which time the
// kernel has set the IOMMU up: functions have drivers after that.
func (m *iommu) look() (root uint64, enabled bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.known {
		m.enabled = m.injector.read("readl", iommuStatus)&iommuEnabled != 0
		m.root = m.injector.read("readq", iommuRoot) & iommuAddress
		m.known = true
	}
	return m.root, m.enabled
}

// translate returns where in the machine's memory an address of a function's is, given the function's number on the bus. It walks the
// tables as the hardware does (struct root_entry, context_entry and dma_pte in iommu.h).
func (m *iommu) translate(function int, address uint64) (to uint64, ok bool) {
	root, enabled := m.look()
	if !enabled {
		return address, true
	}
	entry := m.word(root)
	if entry&iommuPresent == 0 {
		return 0, false
	}
	context := entry&iommuAddress + 16*uint64(8*function)
	table, width := m.word(context), m.word(context+8)&7
	switch {
	case table&iommuPresent == 0:
		return 0, false
	case table>>2&3 == 2: // the type of pass-through
		return address, true
	}
	for level := int(width) + 1; level >= 0; level-- { // of 3 levels for a width of 1
		shift := 12 + 9*level
		table = m.word(table&iommuAddress + 8*(address>>shift&511))
		if table&iommuWritable == 0 {
			return 0, false
		}
		if level == 0 || table&iommuLargePage != 0 {
			below := uint64(1)<<shift - 1
			return table&iommuAddress&^below | address&below, true
		}
	}
	return 0, false
}

// word returns a word of the machine's memory, 0 if it is none.
func (m *iommu) word(address uint64) uint64 {
	if b := m.memory.at(address, 8); b != nil {
		return pcimodel.Load(b)
	}
	return 0
}
