package switchtec

import (
	"math/bits"
	"slices"
	"sync"

	"github.com/ntbnet/ntbnet/internal/testing/pcimodel"
)

// Pair is a switch of two partitions. It implements pcimodel.Bridge.
type Pair struct {
	mu sync.Mutex // guards the following; the functions call their machines under it

	parts     [partitions]partition
	doorbells uint64 // of both partitions
	events    [ports]uint32
	cut       bool
	deaf      [partitions]bool
	counts    [partitions]pcimodel.Counts
	direct    [partitions]uint64 // stores through the direct window
	strangers []uint64
}

// partition is what the switch keeps for a partition.
type partition struct {
	machine pcimodel.Machine
	control controlBlock
	mail    doorbellBlock
}

// New returns a switch that was just switched on.
func New() *Pair {
	s := new(Pair)
	for p := range s.parts {
		s.parts[p].reset()
	}
	return s
}

// Functions implements pcimodel.Bridge.
func (s *Pair) Functions() [2]pcimodel.Function {
	return [2]pcimodel.Function{&function{s, 0}, &function{s, 1}}
}

// Counts implements pcimodel.Bridge.
func (s *Pair) Counts() [2]pcimodel.Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}

// Cut implements pcimodel.Bridge.
func (s *Pair) Cut() { s.setCut(true) }

// Mend implements pcimodel.Bridge.
func (s *Pair) Mend() { s.setCut(false) }

func (s *Pair) setCut(cut bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cut == cut {
		return
	}
	s.cut = cut
	for p := range s.parts {
		s.linkChanged(p)
	}
}

// linkChanged has the link of a partition's upstream port change its state, which is an event for both
// partitions.
func (s *Pair) linkChanged(p int) {
	e := &s.events[upstreamOf(p)]
	count := *e>>eventCount + 1
	*e = *e&eventEnables | eventOccurred | count&0xff<<eventCount
	if *e&eventInterrupt == 0 {
		return
	}
	for q := range s.parts {
		if !s.deaf[q] {
			s.raise(q, eventVector)
		}
	}
}

// Deafen keeps the interrupts of link events from a side, as when the peer resets and none comes. With false, the side
// gets one.
func (s *Pair) Deafen(number int, deaf bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deaf[number] = deaf
	if !deaf {
		s.raise(number, eventVector)
	}
}

// upstreamOf and endpointOf return the numbers of a partition's ports.
func upstreamOf(p int) int { return 2 * p }
func endpointOf(p int) int { return 2*p + 1 }

func (s *Pair) raise(p, vector int) {
	if m := s.parts[p].machine; m != nil {
		m.Raise(vector)
	}
}

func (p *partition) reset() {
	p.control.reset()
	p.mail = doorbellBlock{}
}

// DirectStores returns, by side, how many of the stores went through the direct window. The others are what drivers write to
// each other's page, in which the scratchpads are.
func (s *Pair) DirectStores() [2]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.direct
}

// Strangers returns offsets of registers that drivers have used and the model does not have.
func (s *Pair) Strangers() []uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.strangers)
}

// reset resets a partition with its machine.
func (s *Pair) reset(p int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parts[p].reset()
	s.linkChanged(p)
}

// interrupt sends the interrupts of what has become pending and enabled. It follows each change of the doorbells and
// of a doorbellBlock.
func (s *Pair) interrupt() {
	for p := range s.parts {
		mail := &s.parts[p].mail
		now := mail.pending(s.doorbells)
		risen := now &^ mail.seen
		mail.seen = now
		var raised uint64
		for ; risen != 0; risen &= risen - 1 {
			if v := mail.vectors[bits.TrailingZeros64(risen)]; v < vectors {
				raised |= 1 << v
			}
		}
		for ; raised != 0; raised &= raised - 1 {
			s.raise(p, bits.TrailingZeros64(raised))
		}
	}
}

// function is the NTB function of a partition.
type function struct {
	*Pair
	own int
}

// Header implements pcimodel.Function.
func (f *function) Header() pcimodel.Header {
	at := uint32(dbmsg + f.own*dbmsgSize)
	return pcimodel.Header{Vendor: vendor, Device: device, SubVendor: vendor, SubDevice: device, Class: classBridge,
		BARs: [6]pcimodel.BAR{0: {Size: registersSize}, windowBAR: {Size: windowsSize, Prefetchable: true}},
		MSIX: pcimodel.MSIX{Vectors: vectors, BAR: 0, Table: at + msixTable, Pending: at + msixPending}}
}

// Attach implements pcimodel.Function.
func (f *function) Attach(m pcimodel.Machine) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.parts[f.own].machine = m
}

// Reset implements pcimodel.Function.
func (f *function) Reset() { f.reset(f.own) }

// Read implements pcimodel.Function.
func (f *function) Read(bar int, offset uint64, size int) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if bar == windowBAR {
		to := f.through(offset, size)
		if to == nil {
			f.counts[f.own].Lost++
			return pcimodel.Ones(size)
		}
		f.counts[f.own].Loads++
		return pcimodel.Load(to)
	}
	f.counts[f.own].RegisterReads++
	var v uint64
	for at := offset &^ 3; at < offset+uint64(size); at += 4 {
		word := uint64(f.word(f.own, at))
		if at < offset {
			word >>= 8 * (offset - at)
			v |= word
		} else {
			v |= word << (8 * (at - offset))
		}
	}
	return v & pcimodel.Ones(size)
}

// Write implements pcimodel.Function.
func (f *function) Write(bar int, offset uint64, size int, value uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if bar == windowBAR {
		to := f.through(offset, size)
		if to == nil {
			f.counts[f.own].Lost++
			return
		}
		f.counts[f.own].Stores++
		f.counts[f.own].Bytes += uint64(size)
		if f.parts[f.own].control.isDirect(offset) {
			f.direct[f.own]++
		}
		pcimodel.Store(to, value)
		return
	}
	if !isDoorbell(offset) {
		f.counts[f.own].RegisterWrites++
	}
	for at := offset &^ 3; at < offset+uint64(size); at += 4 {
		v, mask := value, pcimodel.Ones(size)
		if at < offset {
			v, mask = v<<(8*(offset-at)), mask<<(8*(offset-at))
		} else {
			v, mask = v>>(8*(at-offset)), mask>>(8*(at-offset))
		}
		f.setWord(f.own, at, uint32(v), uint32(mask))
	}
}

// through returns the peer's memory behind an access to the windows, or nil if it goes nowhere.
func (f *function) through(offset uint64, size int) []byte {
	if f.cut {
		return nil
	}
	to, address, ok := f.parts[f.own].control.translate(offset)
	if !ok || to == f.own || to >= partitions || f.parts[to].machine == nil {
		return nil
	}
	return f.parts[to].machine.Memory(address, size)
}
