package epf

import (
	"fmt"
	"testing"

	"github.com/ntbnet/ntbnet/internal/testing/pcimodel"
	"github.com/stretchr/testify/require"
)

// host is a machine with the function in it. Its methods make the accesses of drivers/ntb/hw/epf/ntb_hw_epf.c.
type host struct {
	t        *testing.T
	slot     *pcimodel.Slot
	memory   [2 << 20]byte // from ram on
	messages []string
}

const (
	ram  = 0x10000000
	bars = 0xe0000000 // BAR n is at n times 64 MiB behind
)

func (h *host) Message(address uint64, data uint32) {
	h.messages = append(h.messages, fmt.Sprintf("%#x=%#x", address, data))
}

func (h *host) Memory(address uint64, n int) []byte {
	if address < ram || address+uint64(n) > ram+uint64(len(h.memory)) {
		return nil
	}
	return h.memory[address-ram:][:n]
}

// take returns the messages that came.
func (h *host) take() []string {
	defer func() { h.messages = nil }()
	return h.messages
}

// plug puts a bridge's functions into machines whose drivers have not started.
func plug(t *testing.T, c Config) (*Bridge, *host, *host) {
	t.Helper()
	b := New(c)
	var hosts [2]*host
	for i, f := range b.Functions() {
		hosts[i] = &host{t: t}
		hosts[i].slot = pcimodel.NewSlot(f, hosts[i])
	}
	return b, hosts[0], hosts[1]
}

func at(bar int, offset uint64) uint64 { return bars + uint64(bar)<<26 + offset }

func (h *host) read(bar int, offset uint64, size int) uint64 {
	return h.slot.Read(at(bar, offset), size)
}

func (h *host) write(bar int, offset uint64, size int, v uint64) {
	h.slot.Write(at(bar, offset), size, v)
}

// command is ntb_epf_send_command. It returns the status.
func (h *host) command(command, argument uint64) uint64 {
	h.write(barConfig, regArgument, 4, argument)
	h.write(barConfig, regCommand, 4, command)
	status := h.read(barConfig, regStatus, 2)
	h.write(barConfig, regStatus, 2, 0)
	return status
}

// message is what a machine's interrupt controller gives to a vector. Those of vectors above one are in another
// page.
func message(vector int) (address uint64, data uint32) {
	return 0xfee00000 + uint64(vector/2)<<12 + 0x10, 0x40 + uint32(vector)
}

func text(vector int) string {
	address, data := message(vector)
	return fmt.Sprintf("%#x=%#x", address, data)
}

// enable does what the machine does before the driver, and pci_alloc_irq_vectors with request_irq.
func (h *host) enable() {
	for i := range 6 {
		h.slot.WriteConfig(0x10+4*i, 4, uint32(at(i, 0)))
	}
	h.slot.WriteConfig(4, 2, 6)
	table := h.slot.ReadConfig(0x44, 4)
	vectors := int(h.slot.ReadConfig(0x42, 2))&0x7ff + 1
	require.EqualValues(h.t, barConfig, table&7)
	h.slot.WriteConfig(0x42, 2, 0x8000)
	for v := range vectors {
		address, data := message(v)
		entry := uint64(table) + msixEntry*uint64(v)
		h.write(barConfig, entry, 4, address)
		h.write(barConfig, entry+4, 4, address>>32)
		h.write(barConfig, entry+8, 4, uint64(data))
		h.write(barConfig, entry+12, 4, 0)
	}
}

// probe is ntb_epf_pci_probe with four vectors.
func (h *host) probe() {
	h.t.Helper()
	h.enable()
	require.EqualValues(h.t, statusOK, h.command(configureDoorbell, msixEnable|4))
}

// setTrans is ntb_epf_mw_set_trans. It returns the status, which the driver does not.
func (h *host) setTrans(window, address, size uint64) uint64 {
	h.write(barConfig, regAddress, 4, address&0xffffffff)
	h.write(barConfig, regAddress+4, 4, address>>32)
	h.write(barConfig, regSize, 4, size&0xffffffff)
	h.write(barConfig, regSize+4, 4, size>>32)
	return h.command(configureWindow, window)
}

// ring is ntb_epf_peer_db_set.
func (h *host) ring(bit uint64) {
	n := bit + 2
	size := h.read(barConfig, regEntrySize, 4)
	data := h.read(barConfig, regData+4*n, 4)
	offset := h.read(barConfig, regOffset+4*n, 4)
	h.write(barDoorbells, size*n+offset, 4, data)
}

func (h *host) linkIsUp() bool { return h.read(barConfig, regLink, 2)&linkIsUp != 0 }

func TestTheSampleConfiguration(t *testing.T) {
	_, a, _ := plug(t, Sample())
	require.EqualValues(t, 0xb00d104c, a.slot.ReadConfig(0, 4))
	require.EqualValues(t, 0x0500, a.slot.ReadConfig(0x0a, 2))
	for bar, size := range []uint32{1 << 10, 512, 2 << 20, 1 << 20, 0, 0} {
		a.slot.WriteConfig(0x10+4*bar, 4, 0xffffffff)
		require.Equalf(t, -size, a.slot.ReadConfig(0x10+4*bar, 4), "BAR%d", bar)
	}
	a.enable()
	for _, tt := range []struct {
		register uint64
		want     uint64
	}{
		{regWindows, 2}, {regWindow1, 1 << 20}, {regScratchpad, 512}, {regScratchpads, 128}, {regEntrySize, 256},
		{regStatus, 0}, {regLink, 0}, {0x0c, 0}, // the topology is not set
	} {
		require.Equalf(t, tt.want, a.read(barConfig, tt.register, 4), "%#x", tt.register)
	}
	require.EqualValues(t, 3, a.slot.ReadConfig(0x42, 2)&0x7ff, "four vectors")
}

// So they are aligned to their size.
func TestManyScratchpadsMoveThemselves(t *testing.T) {
	c := Sample()
	c.Scratchpads = 256
	_, a, b := plug(t, c)
	a.enable()
	b.enable()
	require.EqualValues(t, 1024, a.read(barConfig, regScratchpad, 4))
	a.write(barPeer, 4*255, 4, 7)
	require.EqualValues(t, 7, b.read(barConfig, 1024+4*255, 4))
}

func TestScratchpadsAreThePeers(t *testing.T) {
	_, a, b := plug(t, Sample())
	a.enable()
	b.enable()
	for i := range uint64(128) {
		a.write(barPeer, 4*i, 4, 1000+i)
		b.write(barPeer, 4*i, 4, 2000+i)
	}
	for i := range uint64(128) {
		require.Equal(t, 1000+i, b.read(barConfig, 512+4*i, 4))
		require.Equal(t, 2000+i, a.read(barConfig, 512+4*i, 4))
		require.Equal(t, 2000+i, b.read(barPeer, 4*i, 4))
	}
}

func TestTheLinkNeedsBothSides(t *testing.T) {
	_, a, b := plug(t, Sample())
	a.probe()
	b.probe()
	require.EqualValues(t, statusOK, a.command(linkUp, 0))
	require.False(t, a.linkIsUp())
	require.Empty(t, a.take())
	require.EqualValues(t, statusOK, b.command(linkUp, 0))
	for _, h := range []*host{a, b} {
		require.True(t, h.linkIsUp())
		require.Equal(t, []string{text(linkVector)}, h.take())
	}
	require.EqualValues(t, statusOK, a.command(linkDown, 0))
	for _, h := range []*host{a, b} {
		require.False(t, h.linkIsUp())
		require.Equal(t, []string{text(linkVector)}, h.take())
	}
	require.Equal(t, []uint64{2, 0, 0, 0}, a.slot.Interrupts())
}

// The firmware interrupts the first machine first, and goes no further when that fails.
func TestTheLinkFailsWithoutInterrupts(t *testing.T) {
	_, a, b := plug(t, Sample())
	b.probe()
	require.EqualValues(t, statusError, b.command(linkDown, 0))
	require.Empty(t, b.take())

	a.probe()
	require.EqualValues(t, statusOK, a.command(linkUp, 0))
	require.EqualValues(t, statusOK, b.command(linkUp, 0))
	a.slot.WriteConfig(0x42, 2, 0) // its driver is removed
	require.EqualValues(t, statusError, b.command(linkDown, 0))
	require.False(t, a.linkIsUp())
	require.True(t, b.linkIsUp(), "its own is not reached")
}

func TestADoorbellIsAStoreAtThePeersMessage(t *testing.T) {
	bridge, a, b := plug(t, Sample())
	a.probe()
	a.ring(0)
	require.EqualValues(t, 1, bridge.Counts()[0].Lost, "the peer has configured none")
	b.probe()
	a.ring(0)
	a.ring(1)
	a.ring(1)
	require.Equal(t, []string{text(2), text(3), text(3)}, b.take())
	require.Equal(t, [64]uint64{1, 2}, bridge.Counts()[0].Doorbells)
	require.Equal(t, []uint64{0, 0, 1, 2}, b.slot.Interrupts())
	require.Empty(t, a.take())

	// The driver rings the one before the first when it is to ring none.
	a.write(barDoorbells, alignment+0x10, 4, 0x41)
	require.Equal(t, []string{text(1)}, b.take())
	require.Equal(t, [64]uint64{1, 2}, bridge.Counts()[0].Doorbells)

	// It is not the machine's table that is asked, nor its masks.
	table := uint64(b.slot.ReadConfig(0x44, 4))
	b.write(barConfig, table+2*msixEntry+8, 4, 0x77)
	b.write(barConfig, table+2*msixEntry+12, 4, 1)
	a.ring(0)
	require.Equal(t, []string{text(2)}, b.take())
	b.slot.WriteConfig(4, 2, 2)
	a.ring(0)
	require.Empty(t, b.take(), "no bus master")
}

// epf_ntb_teardown_db unmaps the first doorbell, which the driver does not ring.
func TestDoorbellsOutliveTheirTeardown(t *testing.T) {
	_, a, b := plug(t, Sample())
	b.probe()
	a.enable()
	require.EqualValues(t, statusOK, b.command(teardownDoorbell, 4))
	a.ring(0)
	require.Equal(t, []string{text(2)}, b.take())
}

// So the controller runs out of regions: of its 30 the first probe takes four, each other three.
func TestADriverIsProbedNineTimes(t *testing.T) {
	_, _, b := plug(t, Sample())
	for range 9 {
		b.probe()
		require.EqualValues(t, statusOK, b.command(teardownDoorbell, 4))
	}
	require.EqualValues(t, statusError, b.command(configureDoorbell, msixEnable|4))
}

func TestDoorbellsThatCannotBeConfigured(t *testing.T) {
	c := Sample()
	c.Doorbells = maxDoorbells
	_, a, _ := plug(t, c)
	a.enable()
	for _, argument := range []uint64{
		msixEnable,      // none
		msixEnable | 33, // more than the firmware knows
		4,               // by MSI
		msixEnable | 32, // more than there are regions
	} {
		require.EqualValuesf(t, statusError, a.command(configureDoorbell, argument), "%#x", argument)
	}
}

func TestWindowsReachThePeersMemory(t *testing.T) {
	bridge, a, b := plug(t, Sample())
	a.probe()
	b.probe()
	a.write(barDoorbells, 1<<20, 8, 1)
	require.Equal(t, pcimodel.Ones(4), a.read(barDoorbells, 1<<20, 4))
	require.EqualValues(t, 2, bridge.Counts()[0].Lost)

	require.EqualValues(t, statusOK, b.setTrans(0, ram, 1<<20))
	require.EqualValues(t, statusOK, b.setTrans(1, ram+1<<20, 64<<10))
	a.write(barDoorbells, 1<<20+8, 8, 0x1122334455667788)
	require.EqualValues(t, 0x55667788, a.read(barDoorbells, 1<<20+8, 4))
	require.EqualValues(t, 0x88, b.memory[8])
	a.write(barDoorbells, 2<<20-4, 4, 5)
	require.EqualValues(t, 5, b.memory[1<<20-4])
	a.write(barDoorbells+1, 64<<10-2, 2, 6)
	require.EqualValues(t, 6, b.memory[1<<20+64<<10-2])
	a.write(barDoorbells+1, 64<<10, 2, 7) // beyond what is translated
	got := bridge.Counts()[0]
	got.RegisterReads, got.RegisterWrites = 0, 0
	require.Equal(t, pcimodel.Counts{Stores: 3, Bytes: 14, Loads: 1, Lost: 3}, got)

	require.EqualValues(t, statusOK, b.command(teardownWindow, 0))
	a.write(barDoorbells, 1<<20+8, 8, 0)
	require.EqualValues(t, 0x88, b.memory[8])
	require.EqualValues(t, 4, bridge.Counts()[0].Lost)
}

// ntb_epf_mw_set_trans does not hand these errors on, and ntb_epf_mw_get_align says that the first would be right:
// window 0 has the BAR's size there.
func TestWindowsThatCannotBeConfigured(t *testing.T) {
	_, a, _ := plug(t, Sample())
	a.probe()
	for _, tt := range []struct{ window, size uint64 }{{0, 2 << 20}, {1, 1<<20 + 1}, {1, 1 << 32}, {0, 0}, {2, 4096}, {1 << 31, 4096}} {
		require.EqualValuesf(t, statusError, a.setTrans(tt.window, ram, tt.size), "%d", tt)
	}
	require.EqualValues(t, statusError, a.command(teardownWindow, 4))
	require.Zero(t, a.command(7, 0), "the firmware sets no status for what it does not know")
	require.EqualValues(t, 0, a.read(barConfig, regCommand, 8), "it takes it, though")
}

// The controller replaces the upper bits of an address, and passes the lower ones.
func TestAWindowIsAlignedToItsSize(t *testing.T) {
	_, a, b := plug(t, Sample())
	b.probe()
	a.enable()
	require.EqualValues(t, statusOK, b.setTrans(1, ram+4096, 12<<10)) // rounded up to 16 KiB
	a.write(barDoorbells+1, 8, 4, 7)
	require.EqualValues(t, 7, b.memory[8])
}

func TestAResetIsNotNoticed(t *testing.T) {
	_, a, b := plug(t, Sample())
	a.probe()
	b.probe()
	a.command(linkUp, 0)
	b.command(linkUp, 0)
	require.EqualValues(t, statusOK, b.setTrans(1, ram, 4096))
	a.write(barPeer, 0, 4, 9)
	a.take()

	b.slot.Reset()
	require.True(t, a.linkIsUp())
	require.Empty(t, a.take())
	a.write(barDoorbells+1, 0, 4, 7)
	require.Zero(t, b.memory[0], "the machine has not enabled bus mastering")

	b.probe()
	b.take()
	require.True(t, b.linkIsUp(), "before the driver asked for it")
	require.EqualValues(t, 9, b.read(barConfig, 512, 4))
	a.write(barDoorbells+1, 0, 4, 7)
	require.EqualValues(t, 7, b.memory[0], "where memory was before the reset")
	require.EqualValues(t, statusOK, b.command(linkUp, 0))
	require.Equal(t, []string{text(linkVector)}, a.take())

	// Two regions have the window: the newest is used, and the oldest is removed.
	require.EqualValues(t, statusOK, b.setTrans(1, ram+4096, 4096))
	a.write(barDoorbells+1, 0, 4, 8)
	require.EqualValues(t, 8, b.memory[4096])
	require.EqualValues(t, statusOK, b.command(teardownWindow, 1))
	a.write(barDoorbells+1, 0, 4, 9)
	require.EqualValues(t, 9, b.memory[4096])
}

func TestACutIsNotNoticed(t *testing.T) {
	bridge, a, b := plug(t, Sample())
	a.probe()
	b.probe()
	a.command(linkUp, 0)
	b.command(linkUp, 0)
	require.EqualValues(t, statusOK, a.setTrans(1, ram, 4096))
	require.EqualValues(t, statusOK, b.setTrans(1, ram, 4096))
	a.take()
	b.take()
	bridge.Cut()
	require.True(t, a.linkIsUp())
	require.Equal(t, pcimodel.Ones(4), b.read(barConfig, regCommand, 4))
	for _, h := range []*host{a, b} {
		h.write(barDoorbells+1, 0, 4, 7)
		require.Equal(t, pcimodel.Ones(4), h.read(barDoorbells+1, 0, 4))
		h.ring(0)
		h.write(barPeer, 0, 4, 5)
	}
	require.Zero(t, a.memory[0]+b.memory[0])
	require.EqualValues(t, statusOK, a.command(linkUp, 0))
	require.Equal(t, []string{text(linkVector)}, a.take())
	require.Empty(t, b.take())
	bridge.Mend()
	require.True(t, b.linkIsUp())
	require.EqualValues(t, 5, b.read(barConfig, 512, 4), "the chip's memory")
	require.Zero(t, a.read(barConfig, 512, 4))
	a.write(barDoorbells+1, 0, 4, 7)
	require.EqualValues(t, 7, b.memory[0])
}

func TestNothingIsReachedOutside(t *testing.T) {
	c := Sample()
	c.Scratchpads = 100 // two alignments, and a table before them that is as long
	c.Windows = []uint32{1 << 20}
	_, a, b := plug(t, c)
	a.enable()
	b.enable()
	for _, offset := range []uint64{0x3fd, 0x3ff} {
		require.Equal(t, pcimodel.Ones(4), a.read(barConfig, offset, 4))
		a.write(barConfig, offset, 4, 0)
	}
	a.write(barConfig, regEntrySize, 4, 0) // which is the machine's to write
	require.EqualValues(t, statusError, b.command(configureDoorbell, msixEnable|4))
	a.write(barConfig, regEntrySize, 4, 1<<31)
	require.EqualValues(t, statusOK, b.command(configureDoorbell, msixEnable|4))
	require.EqualValues(t, statusError, b.command(configureDoorbell, msixEnable|5))
	a.write(barConfig, regWindow1, 4, 1<<31)
	require.EqualValues(t, statusOK, a.setTrans(0, ram, 4096))
	b.write(barDoorbells, 1<<20, 4, 7)
	require.Zero(t, a.memory[0])
}

func TestConfigurationsThatAreNone(t *testing.T) {
	for _, c := range []Config{{}, {Doorbells: 4}, {Doorbells: 33, Windows: []uint32{4096}}, {Doorbells: 4, Windows: make([]uint32, 5)}} {
		require.Panics(t, func() { New(c) })
	}
}
