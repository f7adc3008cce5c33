package pcimodel

import (
	"encoding/binary"
	"sync"
)

// Bus is what an emulated machine offers to a Slot. Its methods do not wait for the guest, and call no method of the
// slot.
type Bus interface {
	// Message sends a message of an interrupt: data, written to an address.
	Message(address uint64, data uint32)

	// Memory is as in Machine.
	Memory(address uint64, n int) []byte
}

// Slot is the place of a function in a machine.
type Slot struct {
	function Function
	header   Header

	mu sync.Mutex // guards the following; a function may be locked before it, never behind it
	// bus is nil when the machine has gone.
	bus     Bus
	config  *config
	table   []byte // four words for each vector: address, its upper half, data, control
	pending []bool // by vector
	sent    []uint64
}

// A vector's entry in the table (PCI_MSIX_ENTRY_… in include/uapi/linux/pci_regs.h).
const (
	entrySize    = 16
	entryData    = 8
	entryControl = 12
	entryMasked  = 1
)

// NewSlot puts a function into a machine.
func NewSlot(f Function, bus Bus) *Slot {
	h := f.Header()
	s := &Slot{function: f, header: h, bus: bus, sent: make([]uint64, h.MSIX.Vectors)}
	s.clear()
	f.Attach(s)
	return s
}

// clear sets what the slot keeps to what it is after a reset. The caller holds mu, or has the slot alone.
func (s *Slot) clear() {
	s.config = newConfig(s.header)
	s.table = make([]byte, entrySize*s.header.MSIX.Vectors)
	s.pending = make([]bool, s.header.MSIX.Vectors)
	for v := range s.pending {
		s.table[entrySize*v+entryControl] = entryMasked
	}
}

// Reset resets the function, with its config space.
func (s *Slot) Reset() {
	s.mu.Lock()
	s.clear()
	s.mu.Unlock()
	s.function.Reset()
}

// Unplug takes the function out of the machine, which has gone. When it returns, the function uses none of the
// machine's memory.
func (s *Slot) Unplug() {
	s.mu.Lock()
	s.bus = nil
	s.mu.Unlock()
	s.Reset()
}

// ReadConfig reads up to four bytes of config space.
func (s *Slot) ReadConfig(offset, size int) uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.config.read(offset, size)
}

// WriteConfig writes up to four bytes of config space.
func (s *Slot) WriteConfig(offset, size int, v uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.config.write(offset, size, v)
	s.sendPending()
}

// Read reads 1, 2, 4 or 8 bytes from a physical address in one of the function's BARs. It returns ones if it is in
// none.
func (s *Slot) Read(address uint64, size int) uint64 {
	bar, offset, own := s.find(address, size)
	switch {
	case bar < 0:
		return Ones(size)
	case own != nil:
		s.mu.Lock()
		defer s.mu.Unlock()
		return Load(own())
	}
	return s.function.Read(bar, offset, size)
}

// Write writes 1, 2, 4 or 8 bytes to a physical address in one of the function's BARs.
func (s *Slot) Write(address uint64, size int, v uint64) {
	bar, offset, own := s.find(address, size)
	switch {
	case bar < 0:
	case own != nil:
		s.mu.Lock()
		defer s.mu.Unlock()
		Store(own(), v)
		s.sendPending()
	default:
		s.function.Write(bar, offset, size, v)
	}
}

// find returns the BAR that has an address, or -1. For an access to the MSI-X table own returns
// what is accessed there, with mu held: the table, or a copy of its pending bits.
func (s *Slot) find(address uint64, size int) (bar int, offset uint64, own func() []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, b := range s.header.BARs {
		base := s.config.base(i)
		if b.Size == 0 || address < base || address-base+uint64(size) > uint64(b.Size) {
			continue
		}
		offset = address - base
		m := s.header.MSIX
		if i != m.BAR {
			return i, offset, nil
		}
		if at, ok := inside(offset, size, m.Table, len(s.table)); ok {
			return i, offset, func() []byte { return s.table[at : at+size] }
		}
		if at, ok := inside(offset, size, m.Pending, (m.Vectors+63)/64*8); ok {
			return i, offset, func() []byte { return s.pendingBits()[at : at+size] }
		}
		return i, offset, nil
	}
	return -1, 0, nil
}

// inside reports whether an access is to an area of length bytes, and where in it.
func inside(offset uint64, size int, area uint32, length int) (at int, ok bool) {
	at = int(offset) - int(area)
	return at, at >= 0 && at+size <= length
}

func (s *Slot) pendingBits() []byte {
	b := make([]byte, (len(s.pending)+63)/64*8)
	for v, is := range s.pending {
		if is {
			b[v/8] |= 1 << (v % 8)
		}
	}
	return b
}

// Raise implements Machine.
func (s *Slot) Raise(vector int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if vector >= len(s.pending) {
		return
	}
	if enabled, _ := s.config.interrupts(); enabled && s.config.master() {
		s.pending[vector] = true
		s.sendPending()
	}
}

// sendPending sends the messages of vectors that are pending and not masked. The caller holds mu.
func (s *Slot) sendPending() {
	enabled, masked := s.config.interrupts()
	if !enabled || masked || !s.config.master() || s.bus == nil {
		return
	}
	for v, is := range s.pending {
		if !is || s.table[entrySize*v+entryControl]&entryMasked != 0 {
			continue
		}
		s.pending[v] = false
		s.sent[v]++
		s.bus.Message(s.message(v))
	}
}

// Vector implements Machine.
func (s *Slot) Vector(vector int) (address uint64, data uint32, enabled bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	enabled, _ = s.config.interrupts()
	address, data = s.message(vector)
	return address, data, enabled
}

// message returns a vector's message. The caller holds mu.
func (s *Slot) message(vector int) (address uint64, data uint32) {
	entry := s.table[entrySize*vector:][:entrySize]
	return binary.LittleEndian.Uint64(entry), binary.LittleEndian.Uint32(entry[entryData:])
}

// Message implements Machine. It counts as an interrupt of the vector that has this message.
func (s *Slot) Message(address uint64, data uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bus == nil || !s.config.master() {
		return
	}
	for v := range s.sent {
		if a, d := s.message(v); a == address && d == data {
			s.sent[v]++
		}
	}
	s.bus.Message(address, data)
}

// Memory implements Machine.
func (s *Slot) Memory(address uint64, n int) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bus == nil || !s.config.master() {
		return nil
	}
	return s.bus.Memory(address, n)
}

// Base implements Machine.
func (s *Slot) Base(bar int) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.config.base(bar)
}

// Interrupts returns how many messages were sent, by vector.
func (s *Slot) Interrupts() []uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]uint64(nil), s.sent...)
}
