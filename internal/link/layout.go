package link

// Offsets in a window: docs/protocol/link.md has its layout.
const (
	offMaster       = 0x0000
	offSetupCredit  = 0x0040
	offSetupBlocked = 0x0080
	offArm          = 0x00c0
	offSummary      = 0x0400
	offSetup        = 0x1000
	offNotes        = offSetup + setupSlots*setupSize

	setupSlots = 64
	setupSize  = 256

	groupSlots = 64      // slots per summary word
	MaxSlots   = 1 << 14 // the most that a window has
	minSlots   = groupSlots

	// MinWindow is the smallest window that a link can use, in bytes.
	MinWindow = 64 << 10
)

// slotsOf returns the number of slots of a window, 64 to 16384, a multiple of 64: as many as
// could each have 4 KiB of a window of up to 16 MiB, or 16 KiB of one from 64 MiB on.
func slotsOf(window int) int {
	const few = 4096
	return max(minSlots, min(window>>12, few), min(window>>14, MaxSlots)) &^ (groupSlots - 1)
}

// offNote returns the offset of a slot's notification word.
func offNote(slot int, e Event) int { return offNotes + 8*slot + 4*int(e) }

// RegionLine returns the number of the first 64-byte line of the region in a window.
func RegionLine(window int) int { return regionOf(window) / 64 }

// regionOf returns the offset of the region in a window.
func regionOf(window int) int {
	return (offNotes + 8*slotsOf(window) + 4095) &^ 4095
}
