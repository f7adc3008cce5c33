package amd

import (
	"sync"

	"github.com/ntbnet/ntbnet/internal/testing/pcimodel"
)

// Pair are both sides of an NTB. It implements pcimodel.Bridge.
type Pair struct {
	mu    sync.Mutex // guards all of both sides
	sides [2]*side
	pads  [scratchpads]uint32
	cut   bool
}

// New returns an NTB. Its windows, of BARs 2 and 4, have sizes that are powers of two.
func New(window0, window1 uint32) *Pair {
	p := new(Pair)
	for i := range p.sides {
		p.sides[i] = &side{pair: p, number: i, windows: [2]uint32{window0, window1}, block: newBlock(i)}
	}
	return p
}

// Functions implements pcimodel.Bridge. The first is the primary side.
func (p *Pair) Functions() [2]pcimodel.Function {
	return [2]pcimodel.Function{p.sides[0], p.sides[1]}
}

// Counts implements pcimodel.Bridge.
func (p *Pair) Counts() [2]pcimodel.Counts {
	p.mu.Lock()
	defer p.mu.Unlock()
	return [2]pcimodel.Counts{p.sides[0].counts, p.sides[1].counts}
}

// Cut implements pcimodel.Bridge.
func (p *Pair) Cut() { p.setCut(true, linkDown) }

// Mend implements pcimodel.Bridge.
func (p *Pair) Mend() { p.setCut(false, linkUp) }

func (p *Pair) setCut(cut bool, event uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = cut
	p.sides[0].happens(event)
}

// side is one side of an NTB. The pair's lock guards it.
type side struct {
	pair    *Pair
	number  int
	windows [2]uint32 // sizes of BARs 2 and 4
	machine pcimodel.Machine
	control uint32
	block   block
	counts  pcimodel.Counts
}

func (s *side) peer() *side { return s.pair.sides[1-s.number] }

// gone reports whether the side's function has gone with the cable.
func (s *side) gone() bool { return s.pair.cut && s.number == 1 }

// Header implements pcimodel.Function.
func (s *side) Header() pcimodel.Header {
	return pcimodel.Header{
		Vendor: vendor, Device: device, SubVendor: vendor, Class: class,
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

// Reset implements pcimodel.Function. Chosen: stores into the machine end, too.
func (s *side) Reset() {
	s.pair.mu.Lock()
	defer s.pair.mu.Unlock()
	s.block, s.control = newBlock(s.number), 0
	s.peer().block.translation, s.peer().block.limit = [2]uint64{}, [2]uint64{}
	s.peer().happens(peerReset)
}

// happens has an event be at a side.
func (s *side) happens(event uint32) {
	if s.block.events |= event; event&^s.block.eventMask != 0 && s.machine != nil {
		s.machine.Raise(eventVector)
	}
}

// Read implements pcimodel.Function.
func (s *side) Read(bar int, offset uint64, size int) uint64 {
	s.pair.mu.Lock()
	defer s.pair.mu.Unlock()
	if s.gone() {
		s.counts.Lost++
		return pcimodel.Ones(size)
	}
	if bar != 0 {
		memory := s.target(bar/2-1, offset, size)
		if memory == nil {
			s.counts.Lost++
			return pcimodel.Ones(size)
		}
		s.counts.Loads++
		return pcimodel.Load(memory)
	}
	s.counts.RegisterReads++
	v := uint64(s.word(offset))
	if size == 8 {
		v |= uint64(s.word(offset+4)) << 32
	}
	return v >> (offset & 3 * 8) & pcimodel.Ones(size)
}

// word returns the 32 bits at an offset of BAR 0. Chosen: a register that is not known reads zero.
func (s *side) word(at uint64) uint32 {
	switch {
	case at == regControl:
		return s.control
	case at >= regScratchpads && at < regScratchpads+4*scratchpads:
		return s.pair.pads[(at-regScratchpads)/4]
	case at >= regBlock+blockSize:
		v, _ := s.peer().block.word(at - blockSize)
		return v
	}
	v, _ := s.block.word(at)
	return v
}

// Write implements pcimodel.Function.
func (s *side) Write(bar int, offset uint64, size int, v uint64) {
	s.pair.mu.Lock()
	defer s.pair.mu.Unlock()
	if bar != 0 || s.gone() {
		s.store(bar/2-1, offset, size, v)
		return
	}
	if offset == regRequest {
		s.ring(uint16(v))
		return
	}
	s.counts.RegisterWrites++
	s.set(offset, uint32(v))
	if size == 8 {
		s.set(offset+4, uint32(v>>32))
	}
}

// set writes 32 bits at an offset of BAR 0.
func (s *side) set(at uint64, v uint32) {
	switch {
	case at == regControl:
		s.control = v
	case at >= regScratchpads && at < regScratchpads+4*scratchpads:
		s.pair.pads[(at-regScratchpads)/4] = v
	case at >= regBlock+blockSize:
		s.peer().block.set(at-blockSize, v)
	default:
		before := s.block.status &^ s.block.mask
		s.block.set(at, v)
		s.raise(s.block.status &^ s.block.mask &^ before)
	}
}

// ring rings doorbells of the peer.
func (s *side) ring(bits uint16) {
	peer := s.peer()
	if peer.gone() {
		s.counts.Lost++
		return
	}
	for bit := range doorbells {
		s.counts.Doorbells[bit] += uint64(bits >> bit & 1)
	}
	fresh := bits &^ peer.block.status &^ peer.block.mask
	peer.block.status |= bits
	peer.raise(fresh)
}

// raise interrupts for doorbells, each of which has a vector.
func (s *side) raise(bits uint16) {
	for bit := range doorbells {
		if bits>>bit&1 != 0 && s.machine != nil {
			s.machine.Raise(bit)
		}
	}
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

// target returns the peer's memory at an offset of a window, or nil if there is none.
func (s *side) target(window int, offset uint64, size int) []byte {
	if window < 0 || s.pair.cut || s.peer().machine == nil || offset+uint64(size) > s.block.limit[window] {
		return nil
	}
	return s.peer().machine.Memory(s.block.translation[window]+offset, size)
}
