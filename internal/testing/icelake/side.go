package icelake

import "github.com/ntbnet/ntbnet/internal/testing/pcimodel"

// side is one NTB of a pair. The pair's lock guards it.
type side struct {
	pair      *Pair
	number    int
	windows   [2]uint32 // sizes of BARs 2 and 4
	machine   pcimodel.Machine
	registers registers
	deaf      bool
	counts    pcimodel.Counts
	strangers []uint64
}

// Header implements pcimodel.Function.
func (s *side) Header() pcimodel.Header {
	return pcimodel.Header{
		Vendor: vendor, Device: device, SubVendor: vendor, Class: class, Revision: revision,
		BARs: [6]pcimodel.BAR{0: {Size: registersEnd},
			2: {Size: s.windows[0], Prefetchable: true}, 4: {Size: s.windows[1], Prefetchable: true}},
		MSIX: pcimodel.MSIX{Vectors: vectors, BAR: 0, Table: tablePlace, Pending: pendingPlace},
	}
}

// Attach implements pcimodel.Function.
func (s *side) Attach(m pcimodel.Machine) {
	s.pair.mu.Lock()
	defer s.pair.mu.Unlock()
	s.machine = m
}

// Reset implements pcimodel.Function.
func (s *side) Reset() {
	s.pair.mu.Lock()
	defer s.pair.mu.Unlock()
	s.registers = newRegisters(s.number)
	s.pair.linkEvents()
}

// Read implements pcimodel.Function.
func (s *side) Read(bar int, offset uint64, size int) uint64 {
	s.pair.mu.Lock()
	defer s.pair.mu.Unlock()
	if bar != 0 {
		return s.load(bar/2-1, offset, size)
	}
	s.counts.RegisterReads++
	var v uint64
	at, shift := offset&^7, offset&7*8
	switch {
	case at >= regPeerPads && at < regPeerPads+4*scratchpads:
		if !s.pair.linked() {
			s.counts.Lost++
			return pcimodel.Ones(size)
		}
		v = s.peer().registers[at-regPeerPads+regScratchpads]
	case known(at):
		v = s.registers[at]
	default:
		s.strangers = append(s.strangers, offset)
	}
	return v >> shift & pcimodel.Ones(size)
}

// known reports whether a word is one of registers that can be read.
func known(at uint64) bool {
	switch at {
	case regControl, regStatus, regDisable, regLinkControl, regSlot, regPPD0, regPPD1:
		return true
	}
	return at >= regBase && at < regBase+0x20 || at >= regVectors && at < regVectors+0x28 ||
		at >= regScratchpads && at < regScratchpads+4*scratchpads
}

// Write implements pcimodel.Function.
func (s *side) Write(bar int, offset uint64, size int, v uint64) {
	s.pair.mu.Lock()
	defer s.pair.mu.Unlock()
	if bar != 0 {
		s.store(bar/2-1, offset, size, v)
		return
	}
	at, shift := offset&^7, offset&7*8
	if at >= regDoorbells && at < regDoorbells+4*doorbells {
		s.ring(int(offset-regDoorbells)/4, v)
		return
	}
	s.counts.RegisterWrites++
	touched := pcimodel.Ones(size) << shift
	s.change(func() { s.set(at, v<<shift, touched) })
	if s.registers[regSlot]&slotChanged != 0 {
		// A driver clears that before the status (gen4_poll_link in drivers/ntb/hw/intel/ntb_hw_gen4.c). Chosen:
		// otherwise the bit is set again at once.
		s.change(func() { s.registers[regStatus] |= 1 << linkBit })
	}
	s.pair.linkEvents()
}

// set writes the touched bits of a word of registers.
func (s *side) set(at, v, touched uint64) {
	r := s.registers
	switch {
	case at == regControl:
		r.write(at, v, touched&0xffffffff)
	case at == regBase || at == regBase+0x10:
		// The hardware cannot take a base that is not aligned to the BAR's size
		// (NTB_HWERR_BAR_ALIGN in drivers/ntb/hw/intel/ntb_hw_gen4.c).
		r.write(at, v, touched&^uint64(s.windows[(at-regBase)/0x10]-1))
	case at == regLimit || at == regLimit+0x10:
		r.write(at, v, touched)
	case at == regStatus:
		r.clear(at, v&touched, statusBits)
	case at == regDisable:
		r.write(at, v, touched&statusBits)
	case at >= regVectors && at < regVectors+0x20:
		r.write(at, v, touched)
	case at == regVectors+0x20:
		r.write(at, v, touched&0xffffffff000000ff)
	case at >= regScratchpads && at < regScratchpads+4*scratchpads:
		r.write(at, v, touched)
	case at >= regPeerPads && at < regPeerPads+4*scratchpads:
		if !s.pair.linked() {
			s.counts.Lost++
			return
		}
		s.peer().registers.write(at-regPeerPads+regScratchpads, v, touched)
	case at == regLinkControl:
		r.write(at, v, touched&0xffff)
	case at == regSlot:
		r.clear(at, v&touched, slotChanged)
	case at == regPPD0:
		r.write(at, v, touched&train)
	case at == regPPD1: // cannot be written
	default:
		s.strangers = append(s.strangers, at)
	}
}

// change does what may change the status or its mask, and raises the interrupts that are due since.
func (s *side) change(do func()) {
	before := s.registers.due()
	do()
	eachBit(s.registers.due()&^before, func(bit int) {
		if s.machine != nil {
			s.machine.Raise(s.registers.vector(bit))
		}
	})
}

func (s *side) peer() *side { return s.pair.sides[1-s.number] }

// ring rings a doorbell of the peer.
func (s *side) ring(bit int, v uint64) {
	if v&1 == 0 {
		return
	}
	if !s.pair.linked() {
		s.counts.Lost++
		return
	}
	s.counts.Doorbells[bit]++
	peer := s.peer()
	peer.change(func() { peer.registers[regStatus] |= 1 << bit })
}

// store stores through a window into the peer's memory.
func (s *side) store(window int, offset uint64, size int, v uint64) {
	memory := s.target(window, offset, size)
	if memory == nil {
		s.counts.Lost++
		return
	}
	pcimodel.Store(memory, v)
	s.counts.Stores++
	s.counts.Bytes += uint64(size)
}

// load loads through a window from the peer's memory.
func (s *side) load(window int, offset uint64, size int) uint64 {
	memory := s.target(window, offset, size)
	if memory == nil {
		s.counts.Lost++
		return pcimodel.Ones(size)
	}
	s.counts.Loads++
	return pcimodel.Load(memory)
}

// target returns the peer's memory at an offset of a window, or nil if there is none. The peer's registers say
// where it is: from its base on, as many bytes as the limit is beyond the address of its BAR
// (intel_ntb4_mw_set_trans in drivers/ntb/hw/intel/ntb_hw_gen4.c). Chosen: a limit that is not in the BAR means
// no bytes, since gen4_setup_b2b_mw writes one for "zero length windows".
func (s *side) target(window int, offset uint64, size int) []byte {
	peer := s.peer()
	if !s.pair.linked() || peer.machine == nil {
		return nil
	}
	at := uint64(0x10 * window)
	length := peer.registers[regLimit+at] - peer.machine.Base(2+2*window)
	if length > uint64(peer.windows[window]) || offset+uint64(size) > length {
		return nil
	}
	return peer.machine.Memory(peer.registers[regBase+at]+offset, size)
}
