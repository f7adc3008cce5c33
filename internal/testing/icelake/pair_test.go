package icelake

import (
	"testing"

	"github.com/ntbnet/ntbnet/internal/testing/pcimodel"
	"github.com/stretchr/testify/require"
)

var _ pcimodel.Bridge = (*Pair)(nil)

// Windows of the pairs here, and where machines have the BARs.
const (
	window0 = 1 << 16
	window1 = 1 << 17
	base2   = 0xe2000000
	base4   = 0xe4000000
)

// machine is a machine with a little memory at an address that suits both windows.
type machine struct {
	pcimodel.Function
	pcimodel.Machine // nil: what is not below is not used
	raised           []int
	memory           [window1]byte
}

const memoryAt = 0x20000000

func (m *machine) Raise(vector int) { m.raised = append(m.raised, vector) }
func (m *machine) Base(bar int) uint64 {
	return map[int]uint64{2: base2, 4: base4}[bar]
}

func (m *machine) Memory(address uint64, n int) []byte {
	if address < memoryAt || address+uint64(n) > memoryAt+uint64(len(m.memory)) {
		return nil
	}
	return m.memory[address-memoryAt:][:n]
}

func (m *machine) read(offset uint64, size int) uint64 { return m.Read(0, offset, size) }

// write writes values of some size, each to an offset before it.
func (m *machine) write(size int, offsetsAndValues ...uint64) {
	for i := 0; i < len(offsetsAndValues); i += 2 {
		m.Write(0, offsetsAndValues[i], size, offsetsAndValues[i+1])
	}
}

// interrupts returns the vectors that were raised since the last call.
func (m *machine) interrupts() []int {
	list := m.raised
	m.raised = nil
	return list
}

// probe does what gen4_init_dev and poll_link do when the driver finds the function.
func (m *machine) probe() {
	m.read(0xb4c0, 4)
	m.write(8, 0x18, 0x2000000000000000, 0x28, 0x4000000000000000, 0x10, 0, 0x20, 0, 0x48, 0xffffffff)
	m.write(2, 0xb050, m.read(0xb050, 2)|0x10)
	for i := range uint64(33) {
		m.write(1, 0x50+i, i)
	}
	m.pollLink()
}

// pollLink does what gen4_poll_link does, and returns the link's status.
func (m *machine) pollLink() uint64 {
	m.write(2, 0xb05a, 0x100)
	m.write(8, 0x40, 1<<32)
	return m.read(0xb052, 2)
}

// enable does what intel_ntb4_link_enable does.
func (m *machine) enable() {
	m.write(4, 0, 0x154)
	m.write(2, 0xb050, m.read(0xb050, 2)&^0x10)
	m.write(4, 0xb0d4, m.read(0xb0d4, 4)|8)
}

func (m *machine) disable() {
	m.write(4, 0, 0)
	m.write(2, 0xb050, m.read(0xb050, 2)|0x10)
}

// translate does what intel_ntb4_mw_set_trans does.
func (m *machine) translate(window, address, size uint64) {
	m.write(8, 0x10+0x10*window, address, 0x18+0x10*window, []uint64{base2, base4}[window]+size)
	m.write(2, 0x74+2*window, 16)
}

// pair returns two machines whose drivers have found the functions, with a link if up.
func pair(t *testing.T, up bool) (p *Pair, a, b *machine) {
	t.Helper()
	p = New(window0, window1)
	f := p.Functions()
	a, b = &machine{Function: f[0]}, &machine{Function: f[1]}
	for _, m := range []*machine{a, b} {
		m.Attach(m)
		m.probe()
		if up {
			m.enable()
		}
	}
	if up {
		require.EqualValues(t, 0x2104, a.pollLink())
		require.EqualValues(t, 0x2104, b.pollLink())
		require.Equal(t, []int{32}, a.interrupts())
		require.Equal(t, []int{32}, b.interrupts())
	}
	t.Cleanup(func() { require.Empty(t, p.Strangers()) })
	return p, a, b
}

func TestTheFunctionIsAnIceLake(t *testing.T) {
	_, a, b := pair(t, false)
	h := a.Header()
	require.Equal(t, [...]any{uint16(0x8086), uint16(0x347e), uint8(4), uint32(0x068000)}, [...]any{h.Vendor, h.Device, h.Revision, h.Class})
	require.Equal(t, [...]uint32{0x10000, 0, window0, 0, window1, 0}, [...]uint32{
		h.BARs[0].Size, h.BARs[1].Size, h.BARs[2].Size, h.BARs[3].Size, h.BARs[4].Size, h.BARs[5].Size})
	require.Equal(t, 33, h.MSIX.Vectors)
	require.EqualValues(t, 0x0200, a.read(0xb4c0, 4), "USD")
	require.EqualValues(t, 0x1200, b.read(0xb4c0, 4), "DSD")
	a.write(4, 0xb4c0, 0)
	require.EqualValues(t, 0x0200, a.read(0xb4c0, 4))
}

func TestVectorsAfterAResetAreShifted(t *testing.T) {
	p := New(window0, window1)
	m := &machine{Function: p.Functions()[0]}
	for i := range uint64(33) {
		require.Equal(t, (i+1)%33, m.read(0x50+i, 1))
	}
}

func TestRegistersKeepWhatTheyHaveBitsFor(t *testing.T) {
	_, a, _ := pair(t, false)
	for _, tt := range []struct {
		offset      uint64
		size        int
		write, want uint64
	}{
		{0x10, 8, 0x7654321000, 0x7654320000}, // aligned to the BAR
		{0x20, 8, 0x7654330000, 0x7654320000},
		{0x10, 8, 0xfffff00000000000, 0xfffff00000000000},
		{0x18, 8, base2 + 123, base2 + 123},
		{0x48, 8, 1<<40 | 5, 5},
		{0x48, 4, 6, 6},
		{0x74, 2, 0xffff, 0xffff},
		{0x76, 2, 20, 20},
		{0x80, 4, 0x12345678, 0x12345678},
		{0xbc, 4, 0x9abcdef0, 0x9abcdef0},
		{0xb052, 2, 0xffff, 0}, // the link's status
		{0xb0d4, 4, 0xffffffff, 8},
	} {
		a.write(tt.size, tt.offset, tt.write)
		require.Equalf(t, tt.want, a.read(tt.offset, tt.size), "%#x", tt.offset)
	}
	require.EqualValues(t, 32, a.read(0x70, 1), "beside the index of a base")
}

func TestTheLinkIsUpWhenBothSidesWant(t *testing.T) {
	p, a, b := pair(t, false)
	a.enable()
	require.Zero(t, a.pollLink())
	require.Empty(t, a.interrupts())
	b.enable()
	require.EqualValues(t, 0x2104, a.pollLink())
	require.EqualValues(t, 0x2104, b.read(0xb052, 2))
	require.Equal(t, []int{32}, a.interrupts())
	require.Equal(t, []int{32}, b.interrupts())

	// Without the bit of SLOTSTS the interrupt comes again.
	b.write(8, 0x40, 1<<32)
	require.Equal(t, []int{32}, b.interrupts())
	b.pollLink()
	require.Empty(t, b.interrupts())
	require.Zero(t, b.read(0x40, 8))

	for _, tt := range []struct {
		name     string
		down, up func()
	}{
		{"disabled", b.disable, b.enable},
		{"cut", p.Cut, p.Mend},
		{"reset", b.Reset, func() { b.probe(); b.enable() }},
	} {
		tt.down()
		require.Zero(t, a.pollLink(), tt.name)
		require.Equal(t, []int{32}, a.interrupts(), tt.name)
		b.pollLink()
		tt.up()
		require.EqualValues(t, 0x2104, a.pollLink(), tt.name)
		require.Equal(t, []int{32}, a.interrupts(), tt.name)
		require.EqualValues(t, 0x2104, b.pollLink(), tt.name)
		b.interrupts()
	}
}

func TestADeafSideSeesNoReset(t *testing.T) {
	p, a, b := pair(t, true)
	p.Deafen(0, true)
	a.translate(0, memoryAt, window0)
	b.translate(0, memoryAt, window0)
	b.Reset()
	require.EqualValues(t, 0x2104, a.pollLink())
	a.Write(2, 0, 8, 1)
	require.EqualValues(t, 1, p.Counts()[0].Lost)
	b.probe()
	b.enable()
	require.EqualValues(t, 0x2104, b.pollLink())
	a.Write(2, 0, 8, 1)
	require.EqualValues(t, 2, p.Counts()[0].Lost, "no translation")
	p.Deafen(0, false)
	require.Empty(t, a.interrupts())
	p.Deafen(0, true)
	b.Reset()
	p.Deafen(0, false)
	require.Zero(t, a.pollLink())
	require.Equal(t, []int{32}, a.interrupts())
}

func TestDoorbells(t *testing.T) {
	p, a, b := pair(t, true)
	a.write(4, 0x100+4*3, 1)
	require.Empty(t, b.interrupts(), "masked")
	require.EqualValues(t, 1<<3, b.read(0x40, 8))
	b.write(8, 0x48, 0)
	require.Equal(t, []int{3}, b.interrupts())
	a.write(4, 0x100+4*3, 1)
	require.Empty(t, b.interrupts(), "not cleared")
	b.write(8, 0x40, 1<<3)
	require.Zero(t, b.read(0x40, 8))
	for bit := range uint64(32) {
		a.write(4, 0x100+4*bit, 1)
		require.Equal(t, []int{int(bit)}, b.interrupts())
	}
	require.EqualValues(t, 0xffffffff, b.read(0x40, 8))
	a.write(4, 0x100, 0)

	p.Cut()
	a.write(4, 0x100, 1)
	require.Equal(t, []int{32}, b.interrupts())
	c := p.Counts()[0]
	require.EqualValues(t, 3, c.Doorbells[3])
	require.EqualValues(t, 1, c.Doorbells[0])
	require.EqualValues(t, 1, c.Lost)
}

func TestScratchpads(t *testing.T) {
	p, a, b := pair(t, true)
	for i := range uint64(16) {
		a.write(4, 0x8080+4*i, 0x1000+i)
		require.Equal(t, 0x1000+i, b.read(0x80+4*i, 4))
		require.Equal(t, 0x1000+i, a.read(0x8080+4*i, 4))
		require.Zero(t, a.read(0x80+4*i, 4))
	}
	p.Cut()
	a.write(4, 0x8080, 1)
	require.EqualValues(t, 0xffffffff, a.read(0x8080, 4))
	require.EqualValues(t, 0x1000, b.read(0x80, 4), "they stay")
	require.EqualValues(t, 2, p.Counts()[0].Lost)
}

func TestWindowsReachWhatThePeerHasTranslated(t *testing.T) {
	p, a, b := pair(t, true)
	for _, w := range []struct {
		window, bar  int
		base, length uint64
	}{{0, 2, base2, window0}, {1, 4, base4, window1}} {
		clear(b.memory[:])
		before := p.Counts()[0]
		b.translate(uint64(w.window), 0, 0)
		a.Write(w.bar, 0, 8, 1)
		b.translate(uint64(w.window), memoryAt, 0x1000)
		a.Write(w.bar, 0x1000, 1, 0xff) // behind the limit
		a.Write(w.bar, 0xffc, 8, ^uint64(0))
		require.Equal(t, pcimodel.Ones(4), a.Read(w.bar, 0x1000, 4))
		require.EqualValues(t, 4, p.Counts()[0].Lost-before.Lost)
		require.Equal(t, [window1]byte{}, b.memory)

		a.Write(w.bar, 0xff8, 8, 0x8877665544332211)
		require.EqualValues(t, 0x44332211, a.Read(w.bar, 0xff8, 4))
		a.Write(w.bar, 0xfff, 1, 0xaa)
		require.Equal(t, uint64(0xaa77665544332211), pcimodel.Load(b.memory[0xff8:0x1000]))

		b.translate(uint64(w.window), memoryAt, w.length)
		a.Write(w.bar, w.length-2, 2, 0xbbcc)
		require.EqualValues(t, 0xbbcc, pcimodel.Load(b.memory[w.length-2:][:2]))
		b.translate(uint64(w.window), memoryAt, w.length+1)
		a.Write(w.bar, 0, 1, 1) // a limit outside

		// Behind the end of RAM.
		b.translate(uint64(w.window), memoryAt+window1, w.length)
		a.Write(w.bar, 0, 1, 1)

		c := p.Counts()[0].Sub(before)
		require.Equal(t, pcimodel.Counts{Stores: 3, Bytes: 11, Loads: 1, Lost: 6}, c)
	}

	b.translate(0, memoryAt, window0)
	p.Cut()
	a.Write(2, 0, 8, 1)
	require.Equal(t, pcimodel.Ones(8), a.Read(2, 0, 8))
	require.Zero(t, p.Counts()[1].Stores)
}

func TestUnknownRegistersAreNoted(t *testing.T) {
	p := New(window0, window1)
	m := &machine{Function: p.Functions()[1]}
	require.Zero(t, m.read(0xc0, 4))
	m.write(4, 0x30ec, 1)
	require.Equal(t, []uint64{0xc0, 0x30e8}, p.Strangers())
}
