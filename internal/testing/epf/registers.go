package epf

// What config space says. The driver asks for these (ntb_epf_pci_tbl in drivers/ntb/hw/epf/ntb_hw_epf.c).
const (
	vendor = 0x104c   // PCI_VENDOR_ID_TI
	device = 0xb00d   // PCI_DEVICE_ID_TI_J721E
	class  = 0x050000 // PCI_CLASS_MEMORY_RAM
)

// BARs (j721e_map in drivers/ntb/hw/epf/ntb_hw_epf.c). Windows but the first have one each, behind barDoorbells.
const (
	barConfig    = 0 // BAR_CONFIG
	barPeer      = 1 // BAR_PEER_SPAD
	barDoorbells = 2 // BAR_DB, and BAR_MW1
	maxWindows   = 4 // MAX_MW in pci-epf-ntb.c
)

// Offsets in barConfig (struct epf_ntb_ctrl in pci-epf-ntb.c, NTB_EPF_… in ntb_hw_epf.c). All this is memory, which the
// machine may overwrite.
const (
	regCommand     = 0x00
	regArgument    = 0x04
	regStatus      = 0x08 // 16 bits
	regLink        = 0x0a // 16 bits
	regAddress     = 0x10 // 64 bits
	regSize        = 0x18 // 64 bits
	regWindows     = 0x20
	regWindow1     = 0x24 // where window 0 is in barDoorbells
	regScratchpad  = 0x28 // where the scratchpads are in barConfig
	regScratchpads = 0x2c
	regEntrySize   = 0x30 // bytes in barDoorbells of each doorbell
	regData        = 0x34 // for each doorbell of the peer
	regOffset      = 0xb4 // for each doorbell of the peer, from its entry in barDoorbells on
	controlSize    = 0x134
)

// Commands (COMMAND_… in pci-epf-ntb.c).
const (
	configureDoorbell = 1 // the argument is a count and msixEnable
	teardownDoorbell  = 2
	configureWindow   = 3 // the argument is a window's number
	teardownWindow    = 4
	linkUp            = 5
	linkDown          = 6

	doorbellCount = 0xffff  // DB_COUNT_MASK
	msixEnable    = 1 << 16 // MSIX_ENABLE

	statusOK    = 1 // COMMAND_STATUS_OK
	statusError = 2 // COMMAND_STATUS_ERROR
	linkIsUp    = 1 // LINK_STATUS_UP
)

const (
	maxDoorbells = 32 // MAX_DB_COUNT in pci-epf-ntb.c

	// Vectors (enum epf_irq_slot in ntb_hw_epf.c). The driver's doorbell bit n is doorbell and vector n+firstDoorbell.
	linkVector    = 0
	firstDoorbell = 2

	msixEntry = 16 // PCI_MSIX_ENTRY_SIZE in include/uapi/linux/pci_regs.h

	// The controller (pcie-cadence-ep.c, pcie-cadence.c and pcie-cadence.h).
	alignment   = 256 // cdns_pcie_epc_features.align
	minRegion   = 8   // bits of an address: cdns_pcie_set_outbound_region
	regions     = 31  // CDNS_PCIE_MAX_OB-1: cdns_pcie_ep_map_addr uses no more
	minAperture = 128 // CDNS_PCIE_EP_MIN_APERTURE
)
