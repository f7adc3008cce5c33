package amd

import (
	"testing"

	"github.com/ntbnet/ntbnet/internal/testing/pcimodel"
	"github.com/stretchr/testify/require"
)

var _ pcimodel.Bridge = (*Pair)(nil)

const (
	window   = 1 << 16
	memoryAt = 0x20000000
)

// machine is a machine with a little memory. Its methods make the accesses of the driver.
type machine struct {
	pcimodel.Function
	pcimodel.Machine // nil: what is not below is not used
	raised           []int
	memory           [window]byte
}

func (m *machine) Raise(vector int) { m.raised = append(m.raised, vector) }

func (m *machine) Memory(address uint64, n int) []byte {
	if address < memoryAt || address+uint64(n) > memoryAt+uint64(len(m.memory)) {
		return nil
	}
	return m.memory[address-memoryAt:][:n]
}

// interrupts returns the vectors that were raised since the last call.
func (m *machine) interrupts() []int {
	defer func() { m.raised = nil }()
	return m.raised
}

// begin is amd_ntb_pci_probe and amd_ntb_link_enable.
func (m *machine) begin() {
	m.Write(0, 0x45c, 2, 0x7fff)
	m.Write(0, 0x470, 4, 0)
	m.Write(0, 0x408, 4, m.Read(0, 0x408, 4)|2)
}

// linkIsUp is amd_poll_link.
func (m *machine) linkIsUp() bool { return m.Read(0, 0x808, 4)&2 != 0 }

// setTrans is amd_ntb_mw_set_trans for BAR 2 or 4. It reports false for EIO.
func (m *machine) setTrans(bar int, address, size uint64) bool {
	at := uint64(bar-2) * 4
	m.Write(0, 0x838+at, 8, address)
	if m.Read(0, 0x838+at, 8) != address {
		return false
	}
	m.Write(0, 0x818+at, 8, size)
	return m.Read(0, 0x818+at, 8) == size
}

func plug() (p *Pair, a, b *machine) {
	p = New(window, window)
	f := p.Functions()
	a, b = &machine{Function: f[0]}, &machine{Function: f[1]}
	a.Attach(a)
	b.Attach(b)
	return p, a, b
}

func TestSides(t *testing.T) {
	p, a, b := plug()
	require.Zero(t, a.Read(0, 0x408, 4)&1)
	require.EqualValues(t, 1, b.Read(0, 0x408, 4)&1)
	a.begin()
	require.False(t, a.linkIsUp())
	require.True(t, b.linkIsUp())
	b.begin()
	require.True(t, a.linkIsUp())
	p.Cut()
	require.Equal(t, []int{16}, a.interrupts())
	require.EqualValues(t, linkDown, a.Read(0, 0x474, 4))
	a.Write(0, 0x474, 4, linkDown)
	require.Zero(t, a.Read(0, 0x474, 4))
	require.EqualValues(t, 0xffffffff, b.Read(0, 0x808, 4))
	p.Mend()
	require.Equal(t, []int{16}, a.interrupts())
	require.Empty(t, b.interrupts())
	b.Reset()
	require.False(t, a.linkIsUp())
	require.Equal(t, []int{16}, a.interrupts())
}

func TestWindows(t *testing.T) {
	p, a, b := plug()
	require.False(t, a.setTrans(2, memoryAt+8, 4096), "memory is aligned to a page")
	for _, bar := range []int{2, 4} {
		require.True(t, a.setTrans(bar, memoryAt+4096, 8192))
		b.Write(bar, 8, 8, 7)
		require.EqualValues(t, 7, a.memory[4096+8])
		require.EqualValues(t, 7, b.Read(bar, 8, 8))
		b.Write(bar, 8192, 8, 7)
		require.EqualValues(t, ^uint64(0), b.Read(bar, 8192, 8), "behind the limit")
		a.memory[4096+8] = 0
	}
	a.Write(2, 0, 8, 7) // b has no memory there
	p.Cut()
	b.Write(2, 8, 8, 9)
	require.Zero(t, a.memory[4096+8])
	p.Mend()
	a.Reset()
	b.Write(2, 8, 8, 9)
	require.Zero(t, a.memory[4096+8])
	require.EqualValues(t, 2, p.Counts()[1].Stores)
	require.EqualValues(t, 7, p.Counts()[1].Lost+p.Counts()[0].Lost)
}

func TestDoorbellsAndScratchpads(t *testing.T) {
	_, a, b := plug()
	a.begin()
	b.begin()
	a.Write(0, 0x454, 2, 1<<15|1<<3)
	require.Equal(t, []int{15}, b.interrupts(), "the others are masked")
	require.EqualValues(t, 1<<15|1<<3, b.Read(0, 0x460, 2))
	b.Write(0, 0x45c, 2, 0)
	require.Equal(t, []int{3}, b.interrupts())
	a.Write(0, 0x454, 2, 1<<3)
	require.Empty(t, b.interrupts(), "it is set already")
	b.Write(0, 0x460, 2, 1<<3)
	a.Write(0, 0x454, 2, 1<<3)
	require.Equal(t, []int{3}, b.interrupts())
	a.Write(0, 0x230, 4, 5)
	require.EqualValues(t, 5, b.Read(0, 0x230, 4))
}
