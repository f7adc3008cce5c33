package epf

import "github.com/ntbnet/ntbnet/internal/testing/pcimodel"

// Header implements [pcimodel.Function].
func (s *side) Header() pcimodel.Header { return s.bridge.header }

// Attach implements [pcimodel.Function].
func (s *side) Attach(m pcimodel.Machine) {
	s.bridge.mu.Lock()
	defer s.bridge.mu.Unlock()
	s.machine = m
}

// Reset implements [pcimodel.Function]. The chip is not reset with a machine: scratchpads, translations and the
// link's state stay. What used the machine's memory has ended when the lock is had.
func (s *side) Reset() {
	s.bridge.mu.Lock()
	defer s.bridge.mu.Unlock()
}

// Read implements [pcimodel.Function].
func (s *side) Read(bar int, offset uint64, size int) uint64 {
	s.bridge.mu.Lock()
	defer s.bridge.mu.Unlock()
	if bar < barDoorbells {
		s.counts.RegisterReads++
		if p := s.register(bar, offset, size); p != nil {
			return pcimodel.Load(p)
		}
		return pcimodel.Ones(size)
	}
	if address, ok := s.reach(bar, offset, size); ok {
		if p := s.peer.machine.Memory(address, size); p != nil {
			s.counts.Loads++
			return pcimodel.Load(p)
		}
	}
	s.counts.Lost++
	return pcimodel.Ones(size)
}

// Write implements [pcimodel.Function].
func (s *side) Write(bar int, offset uint64, size int, value uint64) {
	s.bridge.mu.Lock()
	defer s.bridge.mu.Unlock()
	if bar < barDoorbells {
		s.counts.RegisterWrites++
		p := s.register(bar, offset, size)
		if p == nil {
			return
		}
		pcimodel.Store(p, value)
		if bar == barConfig && offset < regCommand+4 {
			s.handle()
		}
		return
	}
	address, ok := s.reach(bar, offset, size)
	if !ok {
		s.counts.Lost++
		return
	}
	if p := s.peer.machine.Memory(address, size); p != nil {
		s.counts.Stores++
		s.counts.Bytes += uint64(size)
		pcimodel.Store(p, value)
		return
	}
	if bar != barDoorbells || offset >= uint64(s.bridge.window1) || size != 4 {
		s.counts.Lost++
		return
	}
	if n := offset / alignment; n >= firstDoorbell && n < maxDoorbells {
		s.counts.Doorbells[n-firstDoorbell]++
	}
	s.peer.machine.Message(address, uint32(value))
}

// register returns the memory of the chip that an access to one of the first two BARs is to, or nil.
func (s *side) register(bar int, offset uint64, size int) []byte {
	memory := s.memory
	if bar == barPeer {
		memory = s.peer.memory[s.bridge.scratchpads:]
	}
	if !s.connected() || offset+uint64(size) > uint64(len(memory)) {
		return nil
	}
	return memory[offset:][:size]
}

// reach returns the address in the peer's machine that an access to another BAR is to.
func (s *side) reach(bar int, offset uint64, size int) (address uint64, ok bool) {
	if !s.connected() || !s.peer.connected() || s.peer.machine == nil {
		return 0, false
	}
	return s.peer.outbound.find(space(bar, offset), size)
}
