package icelake

import "math/bits"

// The function (drivers/ntb/hw/intel/ntb_hw_intel.h, and PCI_DEVICE_REVISION_ICX_… in ntb_hw_gen4.h).
const (
	vendor   = 0x8086
	device   = 0x347e
	revision = 0x04
	class    = 0x068000
)

// Registers in BAR 0 (drivers/ntb/hw/intel/ntb_hw_gen4.h).
const (
	regControl     = 0x0000 // GEN4_NTBCNTL_OFFSET, 32 bits
	regBase        = 0x0010 // GEN4_IM23XBASE_OFFSET, 64 bits; that of the second window 0x10 behind
	regLimit       = 0x0018 // GEN4_IM23XLMT_OFFSET, 64 bits; the same
	regStatus      = 0x0040 // GEN4_IM_INT_STATUS_OFFSET, 33 bits, cleared by ones
	regDisable     = 0x0048 // GEN4_IM_INT_DISABLE_OFFSET, 33 bits
	regVectors     = 0x0050 // GEN4_INTVEC_OFFSET, 33 bytes; GEN4_IM23XBASEIDX_OFFSET is 16 bits at 0x74, the second at 0x76
	regScratchpads = 0x0080 // GEN4_IM_SPAD_OFFSET, 16 words of 32 bits
	regDoorbells   = 0x0100 // GEN4_IM_DOORBELL_OFFSET, 32 words of 32 bits: a store of 1 rings the peer's
	regPeerPads    = 0x8080 // GEN4_EM_SPAD_OFFSET, the peer's scratchpads
	regLinkControl = 0xb050 // GEN4_LINK_CTRL_OFFSET, 16 bits; GEN4_LINK_STATUS_OFFSET is 16 bits behind
	regSlot        = 0xb058 // GEN4_SLOTSTS is 16 bits at 0xb05a
	regPPD0        = 0xb0d0 // GEN4_PPD0_OFFSET is 32 bits at 0xb0d4
	regPPD1        = 0xb4c0 // GEN4_PPD1_OFFSET, 32 bits
	registersEnd   = 0x10000

	scratchpads = 16 // GEN4_SPAD_COUNT
	doorbells   = 32 // GEN4_DB_COUNT
	linkBit     = 32 // GEN4_DB_LINK
	vectors     = 33 // GEN4_DB_MSIX_VECTOR_COUNT
	statusBits  = 1<<vectors - 1
)

// Bits of registers, in their words of 64 bits (ntb_hw_gen4.h, and NTB_LNK_STA_… in ntb_hw_intel.h).
const (
	linkDisable    = 0x0010             // GEN4_LINK_CTRL_LINK_DISABLE
	linkStatusMask = 0xffff << 16       // of regLinkControl
	linkUp         = 0x2000 | 16<<4 | 4 // active, 16 lanes, fourth generation
	slotChanged    = 0x100 << 16        // GEN4_SLOTSTS_DLLSCS
	train          = 0x0008 << 32       // GEN4_PPD_LINKTRN
	backToBack     = 0x0200             // GEN4_PPD_CONN_B2B
	downstream     = 0x1000             // GEN4_PPD_DEV_DSD
)

// Chosen: no driver says where these are.
const (
	tablePlace   = 0xd000
	pendingPlace = 0xe000
)

// registers are the words of BAR 0 that are kept, by offset.
type registers map[uint64]uint64

// newRegisters returns what they are after a reset. The vectors are 1 to 32, then 0, as gen4_init_isr in
// ntb_hw_gen4.c says. Chosen: all doorbells are masked, and the link is disabled.
func newRegisters(side int) registers {
	r := registers{
		regDisable:      statusBits,
		regVectors:      0x0807060504030201,
		regVectors + 8:  0x100f0e0d0c0b0a09,
		regVectors + 16: 0x1817161514131211,
		regVectors + 24: 0x201f1e1d1c1b1a19,
		regLinkControl:  linkDisable,
		regPPD1:         backToBack,
	}
	if side == 1 {
		r[regPPD1] |= downstream
	}
	return r
}

// write stores those bits of a word that a driver can change.
func (r registers) write(at, v, writable uint64) { r[at] = r[at]&^writable | v&writable }

// clear clears those bits of a word that ones are written to, of some.
func (r registers) clear(at, v, of uint64) { r[at] &^= v & of }

// vector returns the MSI-X vector of a bit of the status.
func (r registers) vector(bit int) int {
	return int(byte(r[regVectors+uint64(bit)/8*8] >> (bit % 8 * 8)))
}

// wantsLink reports whether the driver has enabled the link, and its training has begun.
func (r registers) wantsLink() bool {
	return r[regLinkControl]&linkDisable == 0 && r[regPPD0]&train != 0
}

// due returns the bits that interrupt.
func (r registers) due() uint64 { return r[regStatus] &^ r[regDisable] }

// eachBit calls f for each bit that is set.
func eachBit(v uint64, f func(bit int)) {
	for ; v != 0; v &= v - 1 {
		f(bits.TrailingZeros64(v))
	}
}
