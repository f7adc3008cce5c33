package epf

import (
	"fmt"
	"math/bits"
	"sync"

	"github.com/ntbnet/ntbnet/internal/testing/pcimodel"
)

// Config is how the function is configured, by files in configfs (Documentation/PCI/endpoint/pci-ntb-howto.rst).
type Config struct {
	// Doorbells is db_count. Two of them are for no client: the driver has that of the link and one that it does
	// not use. It wants 4 at least, and the controller has regions for 30, with windows.
	Doorbells   int
	Scratchpads int      // spad_count
	Windows     []uint32 // mw1 to mw4: bytes, powers of two
}

// Sample is the sample configuration of pci-ntb-howto.rst.
func Sample() Config {
	return Config{Doorbells: 4, Scratchpads: 128, Windows: []uint32{1 << 20, 1 << 20}}
}

// Bridge is a function between two machines.
type Bridge struct {
	config      Config
	header      pcimodel.Header
	scratchpads uint32 // where they are in barConfig
	window1     uint32 // where window 0 is in barDoorbells

	mu    sync.Mutex // guards all of the sides
	sides [2]*side   // the primary and the secondary interface
	cut   bool       // the cable of the second
}

// side is what the function is to one machine.
type side struct {
	bridge  *Bridge
	peer    *side
	machine pcimodel.Machine // nil before the first

	memory   []byte // what barConfig shows
	outbound outbound
	up, msix bool // the machine wants the link, and has configured its doorbells
	counts   pcimodel.Counts
}

// New makes a bridge. It panics if the firmware does not take the configuration.
func New(c Config) *Bridge {
	if c.Doorbells < 1 || c.Doorbells > maxDoorbells || len(c.Windows) < 1 || len(c.Windows) > maxWindows {
		panic(fmt.Sprintf("no configuration of pci-epf-ntb: %+v", c))
	}
	b := &Bridge{config: c, header: pcimodel.Header{Vendor: vendor, Device: device, Class: class}}

	// Where what is in barConfig: epf_ntb_config_spad_bar_alloc.
	table := align(controlSize, 8)
	pending := table + msixEntry*uint32(c.Doorbells)
	control := align(pending+align(uint32(c.Doorbells+7)/8, 8), alignment)
	scratchpads := align(4*uint32(c.Scratchpads), alignment)
	control = max(control, scratchpads)
	b.scratchpads = control
	b.header.MSIX = pcimodel.MSIX{Vectors: c.Doorbells, BAR: barConfig, Table: table, Pending: pending}
	b.header.BARs[barConfig] = aperture(control + scratchpads)
	b.header.BARs[barPeer] = aperture(scratchpads)

	// And behind: epf_ntb_db_mw_bar_init.
	b.window1 = align(alignment*uint32(c.Doorbells), c.Windows[0])
	b.header.BARs[barDoorbells] = aperture(b.window1 + c.Windows[0])
	for i, size := range c.Windows[1:] {
		b.header.BARs[barDoorbells+1+i] = aperture(size)
	}

	for i := range b.sides {
		s := &side{bridge: b, memory: make([]byte, control+scratchpads)}
		s.put(regWindows, 4, uint64(len(c.Windows)))
		s.put(regWindow1, 4, uint64(b.window1))
		s.put(regScratchpad, 4, uint64(b.scratchpads))
		s.put(regScratchpads, 4, uint64(c.Scratchpads))
		s.put(regEntrySize, 4, alignment)
		b.sides[i] = s
	}
	b.sides[0].peer, b.sides[1].peer = b.sides[1], b.sides[0]
	return b
}

// align rounds n up to a multiple of a power of two.
func align(n, to uint32) uint32 { return (n + to - 1) &^ (to - 1) }

// aperture returns a BAR for an area of some size (cdns_pcie_ep_set_bar).
func aperture(size uint32) pcimodel.BAR {
	return pcimodel.BAR{Size: 1 << bits.Len32(max(size, minAperture)-1)}
}

// Functions implements [pcimodel.Bridge].
func (b *Bridge) Functions() [2]pcimodel.Function {
	return [2]pcimodel.Function{b.sides[0], b.sides[1]}
}

// Counts implements [pcimodel.Bridge].
func (b *Bridge) Counts() [2]pcimodel.Counts {
	b.mu.Lock()
	defer b.mu.Unlock()
	return [2]pcimodel.Counts{b.sides[0].counts, b.sides[1].counts}
}

// Cut cuts the cable between the second machine and the chip. The function does not notice it, and the first
// machine is not told: pci-epf-ntb.c handles no events of its controllers.
func (b *Bridge) Cut() { b.setCut(true) }

// Mend mends the cable. All is as it was.
func (b *Bridge) Mend() { b.setCut(false) }

func (b *Bridge) setCut(cut bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cut = cut
}

// connected reports whether there is a cable to the side's machine. The caller holds the bridge's lock.
func (s *side) connected() bool { return !s.bridge.cut || s == s.bridge.sides[0] }
