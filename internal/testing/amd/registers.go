package amd

// The function (amd_ntb_pci_tbl in drivers/ntb/hw/amd/ntb_hw_amd.c).
const (
	vendor = 0x1022
	device = 0x148b
	class  = 0x068000
)

// Registers in BAR 0, of 32 bits but for what is said (drivers/ntb/hw/amd/ntb_hw_amd.h). From regBlock on they are those of the
// own side, and blockSize behind those of the other one.
const (
	regControl     = 0x200 // AMD_CNTL_OFFSET
	regScratchpads = 0x210 // AMD_SPAD_OFFSET, 16 words of both sides
	regBlock       = 0x400
	regSide        = 0x408 // AMD_SIDEINFO_OFFSET
	regLimit       = 0x418 // AMD_BAR23LMT_OFFSET, 64 bits; that of BAR 4 is 8 behind
	regTranslation = 0x438 // AMD_BAR23XLAT_OFFSET, the same
	regRequest     = 0x454 // AMD_DBREQ_OFFSET, 16 bits: ones ring the other side's doorbells
	regMask        = 0x45c // AMD_DBMASK_OFFSET, 16 bits
	regStatus      = 0x460 // AMD_DBSTAT_OFFSET, 16 bits, cleared by ones
	regEventMask   = 0x470 // AMD_INTMASK_OFFSET
	regEvents      = 0x474 // AMD_INTSTAT_OFFSET, cleared by ones
	regAcknowledge = 0x4a0 // AMD_SMUACK_OFFSET
	blockSize      = 0x400 // AMD_PEER_OFFSET

	scratchpads = 16 // AMD_SPADS_CNT
	doorbells   = 16 // AMD_DB_CNT
	vectors     = 24 // AMD_MSIX_VECTOR_CNT

	secondary = 1 << 0 // AMD_SIDE_MASK
	sideReady = 1 << 1 // AMD_SIDE_READY

	peerReset = 1 << 1 // AMD_PEER_RESET_EVENT
	linkUp    = 1 << 5 // AMD_LINK_UP_EVENT
	linkDown  = 1 << 6 // AMD_LINK_DOWN_EVENT
	allEvents = 0x7f   // AMD_EVENT_INTMASK
	pageMask  = 0xfff  // amd_ntb_mw_get_align: memory is aligned to 4 KiB
)

// Chosen: no driver says where these are, which vector has events, and what masks are after a reset.
const (
	registersEnd = 0x10000
	tablePlace   = 0x2000
	pendingPlace = 0x3000
	eventVector  = doorbells
)

// block are the registers of a side.
type block struct {
	side               uint32
	limit, translation [2]uint64 // where stores of this side go
	mask, status       uint16    // of doorbells
	eventMask, events  uint32
	acknowledged       uint32
}

func newBlock(number int) block {
	return block{side: uint32(number), mask: 0xffff, eventMask: allEvents}
}

// word returns the 32 bits at an offset of a block, ok being false if there is no such register.
func (b *block) word(at uint64) (v uint32, ok bool) {
	switch at &^ 3 {
	case regSide:
		return b.side, true
	case regMask:
		return uint32(b.mask), true
	case regStatus:
		return uint32(b.status), true
	case regEventMask:
		return b.eventMask, true
	case regEvents:
		return b.events, true
	case regAcknowledge:
		return b.acknowledged, true
	}
	if p, shift := b.wide(at); p != nil {
		return uint32(*p >> shift), true
	}
	return 0, false
}

// wide returns the register of 64 bits that has an offset, and which bits of it are there.
func (b *block) wide(at uint64) (p *uint64, shift uint64) {
	switch {
	case at >= regLimit && at < regLimit+16:
		return &b.limit[(at-regLimit)/8], at & 4 * 8
	case at >= regTranslation && at < regTranslation+16:
		return &b.translation[(at-regTranslation)/8], at & 4 * 8
	}
	return nil, 0
}

// set writes 32 bits at an offset. It reports false if there is no such register.
func (b *block) set(at uint64, v uint32) bool {
	switch at &^ 3 {
	case regSide:
		b.side = b.side&secondary | v&sideReady
	case regMask:
		b.mask = uint16(v)
	case regStatus:
		b.status &^= uint16(v)
	case regEventMask:
		b.eventMask = v
	case regEvents:
		b.events &^= v
	case regAcknowledge:
		b.acknowledged = v
	default:
		p, shift := b.wide(at)
		if p == nil {
			return false
		}
		*p = *p&^(0xffffffff<<shift) | uint64(v)<<shift
		if at >= regTranslation {
			*p &^= pageMask
		}
	}
	return true
}
