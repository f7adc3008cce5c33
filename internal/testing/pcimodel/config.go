package pcimodel

import "encoding/binary"

// Offsets in config space, and bits there (include/uapi/linux/pci_regs.h of the kernel's tree).
const (
	configSize = 256

	regCommand    = 0x04
	regStatus     = 0x06
	regRevision   = 0x08 // and the class
	regCacheLine  = 0x0c
	regBAR        = 0x10 // six of four bytes
	regSubVendor  = 0x2c
	regSubDevice  = 0x2e
	regCapability = 0x34
	regLine       = 0x3c
	regMSIX       = 0x40 // the only capability
	regMSIXFlags  = regMSIX + 2
	regMSIXTable  = regMSIX + 4
	regMSIXBits   = regMSIX + 8

	commandMemory   = 0x002
	commandMaster   = 0x004
	commandWritable = commandMemory | commandMaster | 0x540 // parity, SERR and INTx disable, too

	statusCapabilities = 0x10
	barPrefetch        = 0x08
	capMSIX            = 0x11
	msixEnable         = 0x8000
	msixMaskAll        = 0x4000
)

// config is a config space.
type config struct {
	bytes    [configSize]byte
	writable [configSize]byte // bits that the machine can change
}

// newConfig returns what config space has after a reset. A function without MSI-X has no capability. There is no
// pin for interrupts, which the model could not raise.
func newConfig(h Header) *config {
	c := new(config)
	put16 := func(at int, v uint16) { binary.LittleEndian.PutUint16(c.bytes[at:], v) }
	put32 := func(at int, v uint32) { binary.LittleEndian.PutUint32(c.bytes[at:], v) }
	put16(0, h.Vendor)
	put16(2, h.Device)
	put32(regRevision, h.Class<<8|uint32(h.Revision))
	put16(regSubVendor, h.SubVendor)
	put16(regSubDevice, h.SubDevice)
	binary.LittleEndian.PutUint16(c.writable[regCommand:], commandWritable)
	c.writable[regCacheLine], c.writable[regLine] = 0xff, 0xff
	for i, b := range h.BARs {
		if b.Size == 0 {
			continue
		}
		binary.LittleEndian.PutUint32(c.writable[regBAR+4*i:], -b.Size)
		if b.Prefetchable {
			c.bytes[regBAR+4*i] = barPrefetch
		}
	}
	if m := h.MSIX; m.Vectors > 0 {
		put16(regStatus, statusCapabilities)
		c.bytes[regCapability] = regMSIX
		c.bytes[regMSIX] = capMSIX
		put16(regMSIXFlags, uint16(m.Vectors-1))
		put32(regMSIXTable, m.Table|uint32(m.BAR))
		put32(regMSIXBits, m.Pending|uint32(m.BAR))
		binary.LittleEndian.PutUint16(c.writable[regMSIXFlags:], msixEnable|msixMaskAll)
	}
	return c
}

// read returns up to four bytes. Those outside are ones.
func (c *config) read(offset, size int) (v uint32) {
	for i := range size {
		b := byte(0xff)
		if offset+i < configSize {
			b = c.bytes[offset+i]
		}
		v |= uint32(b) << (8 * i)
	}
	return v
}

func (c *config) write(offset, size int, v uint32) {
	for i := range size {
		if at := offset + i; at < configSize {
			c.bytes[at] = c.bytes[at]&^c.writable[at] | byte(v>>(8*i))&c.writable[at]
		}
	}
}

func (c *config) base(bar int) uint64 { return uint64(c.read(regBAR+4*bar, 4) &^ 0xf) }

func (c *config) master() bool { return c.read(regCommand, 2)&commandMaster != 0 }

// interrupts reports whether MSI-X is enabled, and whether all vectors are masked.
func (c *config) interrupts() (enabled, masked bool) {
	flags := c.read(regMSIXFlags, 2)
	return flags&msixEnable != 0, flags&msixMaskAll != 0
}
