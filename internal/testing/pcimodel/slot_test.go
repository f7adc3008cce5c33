package pcimodel

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// fakeFunction is a function whose BAR 2 is memory.
type fakeFunction struct {
	memory [4096]byte
	in     Machine
	resets int
}

func (f *fakeFunction) Header() Header {
	return Header{Vendor: 0x8086, Device: 0x347e, SubVendor: 1, SubDevice: 2, Class: 0x068000, Revision: 4,
		BARs: [6]BAR{0: {Size: 0x10000}, 2: {Size: 4096, Prefetchable: true}},
		MSIX: MSIX{Vectors: 3, BAR: 0, Table: 0xd000, Pending: 0xe000}}
}

func (f *fakeFunction) Read(bar int, offset uint64, size int) uint64 {
	if bar != 2 {
		return 0x1234
	}
	return Load(f.memory[offset:][:size])
}

func (f *fakeFunction) Write(bar int, offset uint64, size int, v uint64) {
	if bar == 2 {
		Store(f.memory[offset:][:size], v)
	}
}

func (f *fakeFunction) Attach(m Machine) { f.in = m }
func (f *fakeFunction) Reset()           { f.resets++ }

// fakeBus keeps messages, and has memory from 0x1000 on.
type fakeBus struct {
	messages []uint32
	memory   [16]byte
}

func (b *fakeBus) Message(address uint64, data uint32) {
	b.messages = append(b.messages, uint32(address)|data)
}

func (b *fakeBus) Memory(address uint64, n int) []byte {
	if address < 0x1000 || address-0x1000+uint64(n) > uint64(len(b.memory)) {
		return nil
	}
	return b.memory[address-0x1000:][:n]
}

func plug(t *testing.T) (*Slot, *fakeFunction, *fakeBus) {
	t.Helper()
	f, b := new(fakeFunction), new(fakeBus)
	s := NewSlot(f, b)
	require.Equal(t, Machine(s), f.in)
	s.WriteConfig(0x10, 4, 0xe0000000)
	s.WriteConfig(0x18, 4, 0xe1000000)
	s.WriteConfig(4, 2, commandMemory|commandMaster)
	return s, f, b
}

func TestConfigSpaceIdentifiesTheFunction(t *testing.T) {
	s, _, _ := plug(t)
	for _, tt := range []struct {
		offset, size int
		want         uint32
	}{
		{0, 4, 0x347e8086}, {8, 4, 0x06800004}, {0x0e, 1, 0}, {0x2c, 4, 0x00020001},
		{6, 2, statusCapabilities}, {0x34, 1, 0x40}, {0x3d, 1, 0},
		{0x40, 4, 2<<16 | 0x11}, {0x44, 4, 0xd000}, {0x48, 4, 0xe000}, {255, 2, 0xff00}, {256, 4, 0xffffffff},
	} {
		require.Equalf(t, tt.want, s.ReadConfig(tt.offset, tt.size), "%#x", tt.offset)
	}
}

func TestBARsAreSized(t *testing.T) {
	s, _, _ := plug(t)
	for _, tt := range []struct {
		offset int
		want   uint32
	}{{0x10, 0xffff0000}, {0x14, 0}, {0x18, 0xfffff008}, {0x28, 0}, {0x30, 0}} {
		before := s.ReadConfig(tt.offset, 4)
		s.WriteConfig(tt.offset, 4, 0xffffffff)
		require.Equalf(t, tt.want, s.ReadConfig(tt.offset, 4), "%#x", tt.offset)
		s.WriteConfig(tt.offset, 4, before)
		require.Equal(t, before, s.ReadConfig(tt.offset, 4))
	}
	require.EqualValues(t, 0xe1000000, s.Base(2))
	s.WriteConfig(0, 4, 0)
	require.EqualValues(t, 0x347e8086, s.ReadConfig(0, 4))
}

func TestAccessesGoToTheirBAR(t *testing.T) {
	s, f, _ := plug(t)
	for _, size := range []int{1, 2, 4, 8} {
		s.Write(0xe1000ff8, size, 0x8877665544332211)
		require.Equal(t, 0x8877665544332211&Ones(size), s.Read(0xe1000ff8, size))
	}
	require.EqualValues(t, 0x11, f.memory[0xff8])
	require.EqualValues(t, 0x1234, s.Read(0xe0000000, 4))
	require.Equal(t, Ones(8), s.Read(0xe1000ffc, 8), "beyond the end")
	require.Equal(t, Ones(2), s.Read(0x1000, 2))
	s.Write(0x1000, 2, 0)
}

func TestInterruptsAreMessages(t *testing.T) {
	s, _, b := plug(t)
	entry := func(v int) uint64 { return 0xe000d000 + 16*uint64(v) }
	for v := range 3 {
		require.EqualValues(t, 1, s.Read(entry(v)+12, 4), "masked after a reset")
		s.Write(entry(v), 8, 0xfee00000)
		s.Write(entry(v)+8, 4, uint64(0x40+v))
	}
	s.Write(entry(1)+12, 4, 0)
	s.Raise(1)
	require.Empty(t, b.messages, "not enabled")
	s.WriteConfig(0x42, 2, msixEnable)
	require.Empty(t, b.messages, "lost")

	s.Raise(1)
	s.Raise(2)
	s.Raise(3) // there is none
	require.Equal(t, []uint32{0xfee00041}, b.messages)
	require.EqualValues(t, 1<<2, s.Read(0xe000e000, 8))
	s.Write(entry(2)+12, 4, 0)
	require.Equal(t, []uint32{0xfee00041, 0xfee00042}, b.messages)
	require.Zero(t, s.Read(0xe000e000, 8))

	s.WriteConfig(0x42, 2, msixEnable|msixMaskAll)
	s.Raise(1)
	s.Raise(1)
	require.Len(t, b.messages, 2)
	s.WriteConfig(0x42, 2, msixEnable)
	require.Len(t, b.messages, 3)

	s.WriteConfig(4, 2, commandMemory)
	s.Raise(1)
	s.WriteConfig(4, 2, commandMemory|commandMaster)
	require.Len(t, b.messages, 3, "without bus mastering it is lost")
	require.Equal(t, []uint64{0, 2, 1}, s.Interrupts())
}

func TestAFunctionSendsMessagesItself(t *testing.T) {
	s, _, b := plug(t)
	s.Write(0xe000d010, 8, 0xfee00000)
	s.Write(0xe000d018, 4, 0x41)
	address, data, enabled := s.Vector(1)
	require.False(t, enabled)
	s.WriteConfig(0x42, 2, msixEnable|msixMaskAll)
	_, _, enabled = s.Vector(1)
	require.True(t, enabled)
	s.Message(address, data)
	s.Message(address, data+1)
	require.Equal(t, []uint32{0xfee00041, 0xfee00042}, b.messages)
	require.Equal(t, []uint64{0, 1, 0}, s.Interrupts())
	s.WriteConfig(4, 2, commandMemory)
	s.Message(address, data)
	require.Len(t, b.messages, 2)
}

func TestMemoryIsForBusMasters(t *testing.T) {
	s, f, b := plug(t)
	Store(s.Memory(0x1008, 8), 7)
	require.EqualValues(t, 7, b.memory[8])
	require.Nil(t, s.Memory(0x100c, 8))
	s.WriteConfig(4, 2, commandMemory)
	require.Nil(t, s.Memory(0x1008, 8))
	s.WriteConfig(4, 2, commandMaster)
	s.Unplug()
	require.Equal(t, 1, f.resets)
	require.Nil(t, s.Memory(0x1008, 8))
	require.Zero(t, s.Base(0))
}

func TestCountsBetween(t *testing.T) {
	a := Counts{Stores: 1, Bytes: 2, Loads: 3, Lost: 4, RegisterReads: 5, RegisterWrites: 6, Doorbells: [64]uint64{7: 7}}
	require.Equal(t, Counts{}, a.Sub(a))
	require.Equal(t, a, a.Sub(Counts{}))
}
