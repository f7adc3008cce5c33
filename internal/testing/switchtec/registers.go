package switchtec

// Identity of the function.
const (
	vendor      = 0x11f8   // PCI_VENDOR_ID_MICROSEMI (include/linux/pci_ids.h)
	device      = 0x4036   // PFX 36XG4 (drivers/pci/switch/switchtec.c)
	classBridge = 0x068000 // PCI_CLASS_BRIDGE_OTHER << 8 (include/linux/pci_ids.h)
)

// The switch.
const (
	partitions = 2
	ports      = 2 * partitions // of each partition the upstream port and the endpoint

	registersSize = 4 << 20 // as lspci shows it in github.com/Microsemi/switchtec-kernel, issue 4
	vectors       = 4       // likewise
	eventVector   = 0

	windowBAR   = 2
	windowsSize = 8 << 20

	// The driver of 6.12 shares 512 entries by half, and complains of more than 128 windows (MAX_MWS in
	// ntb_hw_switchtec.c).
	lutEntries = 64

	mostPartitions = 48 // with control blocks and ntp_info

	requesterIDs = 16 // crosslink_setup_req_ids in ntb_hw_switchtec.c reads that many
	processors   = 0  // the requester ID of a machine's processors, 00:00.0
)

// Areas of BAR 0 (SWITCHTEC_GAS_…_OFFSET, SWITCHTEC_NTB_REG_…_OFFSET).
const (
	mrpcDMA         = 0x81c  // mrpc_regs.dma_ver: 0, so the driver leaves it alone
	switchEvents    = 0x1800 // struct sw_event_regs
	switchEventsEnd = 0x1980
	sysInfo         = 0x2000
	partConfig      = 0x4000
	ntbInfo         = 0x10000
	control         = ntbInfo + 0x4000
	dbmsg           = ntbInfo + 0x64000
	portCSR         = 0x134000

	partConfigSize = 0x400  // struct part_cfg_regs
	controlSize    = 0x2000 // struct ntb_ctrl_regs
	dbmsgSize      = 0x4000 // struct ntb_dbmsg_regs
	portCSRSize    = 0x1000 // struct pff_csr_regs
)

// struct sys_info_regs, from sysInfo on.
const (
	deviceID    = 0x00
	partitionID = 0x48 // sys_info_regs_gen4.partition_id
)

// struct part_cfg_regs.
const (
	upstreamPort    = 0x10  // usp_pff_inst_id
	endpointPort    = 0x14  // vep_pff_inst_id
	downstreamPorts = 0x18  // dsp_pff_inst_id, 47 of them
	partEvents      = 0x124 // part_reset_hdr, and one more every 24 bytes, to intercomm_notify_data
	partEventsEnd   = 0x19c
	downstreamEnd   = 0xd4
	vectorNumbers   = 0x100 // vep_vector_number and usp_vector_number, of 16 bits each
	noPort          = 0xffffffff
)

// struct ntb_info_regs, from ntbInfo on.
const (
	partitionCount = 0x00 // and partition_id at 1
	endpointMap    = 0x04 // ep_map, of 64 bits
	requesterID    = 0x0c // of who reads it
	targets        = 0x20 // ntp_info: for each partition xlink_enabled, target_part_low, target_part_high
	targetsEvery   = 0x10
	targetLow      = 0x04
)

// struct ntb_ctrl_regs.
const (
	partitionStatus = 0x00
	partitionOp     = 0x04
	barError        = 0x10
	lutCount        = 0x14 // lut_table_entries, of 16 bits
	requesterCount  = 0x1c // req_id_table_size, of 16 bits
	barEntries      = 0x40 // for each BAR ctl, win_size and xlate_addr, of 64 bits
	barEntriesEvery = 0x10
	barExtEntries   = 0xa0 // for each BAR the upper half of win_size
	barExtEnd       = 0x100
	requesterTable  = 0x400
	requesterEnd    = requesterTable + 4*requesterIDs
	lutTable        = 0x1000
	lutEnd          = lutTable + 8*lutEntries
)

// Operations on a control block, and its states (NTB_CTRL_PART_…).
const (
	opLock  = 1
	opCfg   = 2
	opReset = 3

	statusNormal = 1
	statusLocked = 2
)

// Fields of a control block.
const (
	barValid   = 1 << 0 // NTB_CTRL_BAR_VALID
	barDirect  = 1 << 4 // NTB_CTRL_BAR_DIR_WIN_EN
	barLUT     = 1 << 5 // NTB_CTRL_BAR_LUT_WIN_EN
	barLUTSize = 8      // six bits: the logarithm of a window's size (config_rsvd_lut_win in ntb_hw_switchtec.c)
	barLUTs    = 14     // the number of windows, less one (the same)

	lutValid       = 1 << 0 // NTB_CTRL_LUT_EN
	lutPartition   = 1      // six bits (switchtec_ntb_mw_set_lut in ntb_hw_switchtec.c)
	partitionMask  = 0x3f   // of 48 partitions (ntp_info)
	requesterValid = 1 << 0 // NTB_CTRL_REQ_ID_EN
	requesterProxy = 1      // eight bits, which the switch fills in (config_req_id_table in ntb_hw_switchtec.c)
	requesterShift = 16

	directPosition = 0xfff // of win_size: the lowest bit of an address that is translated
	directSize     = 0xfffff000

	// errorLUTSize is bar_error where the windows of BAR 2 exceed it: "Error setting up reserved lut window:
	// 00030002", as github.com/Microsemi/switchtec-kernel, issue 109, has it.
	errorLUTSize = 0x00030002
)

// struct ntb_dbmsg_regs.
const (
	outDoorbells    = 0x1000
	outDoorbellMask = 0x1008 // 1 lets a doorbell out
	inDoorbells     = 0x1010 // a 1 that is written clears
	inDoorbellMask  = 0x1018 // 1 lets an interrupt through
	vectorMap       = 0x1020 // idb_vec_map, a byte for each doorbell
	messageMap      = 0x1060 // msg_map, a byte for each message in: the other's partition << 2, and its register
	outMessages     = 0x1068 // omsg: message, status
	inMessages      = 0x1088 // imsg: message; a byte each of status, mask, source
	msixTable       = 0x2000
	msixPending     = 0x3000

	messages = 4
	// firstMessage is the first of the bits that messages have among the doorbells (switchtec_ntb_init_db_msg_irq in
	// ntb_hw_switchtec.c).
	firstMessage = 60

	messageStatus = 1 << 0 // the byte of NTB_DBMSG_IMSG_STATUS
	messageMask   = 1 << 8 // the byte of NTB_DBMSG_IMSG_MASK: 1 lets an interrupt through
	messageSource = 16
)

// struct pff_csr_regs.
const (
	portID         = 0x00  // vendor_id and device_id
	linkStatus     = 0x74  // pci_cap_region[13]: LNKSTA in its upper half (switchtec_ntb_part_link_speed in ntb_hw_switchtec.c)
	portEvents     = 0xc00 // pff_event_summary, and from 0xc10 on a header every 24 bytes
	linkStateEvent = 0xd30 // link_state_hdr, the last of them
	portEventsEnd  = 0xd48

	linkGen4x16 = 4 | 16<<4
)

// An event's header (SWITCHTEC_EVENT_…).
const (
	eventOccurred  = 1 << 0 // a 1 that is written clears it
	eventInterrupt = 1 << 3
	eventEnables   = 0x1e // ..._EN_LOG, EN_CLI, EN_IRQ, FATAL
	eventCount     = 5    // eight bits (check_link_state_events in drivers/pci/switch/switchtec.c)
)
