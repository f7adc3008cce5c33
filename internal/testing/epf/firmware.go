package epf

import "github.com/ntbnet/ntbnet/internal/testing/pcimodel"

// This file is what epf_ntb_cmd_handler and the functions that it calls do (pci-epf-ntb.c). The bridge's lock is held.

func (s *side) get(register, size int) uint64 { return pcimodel.Load(s.memory[register:][:size]) }

func (s *side) put(register, size int, v uint64) { pcimodel.Store(s.memory[register:][:size], v) }

// handle runs the command that the machine has stored, if there is one. An unknown command gets no status.
func (s *side) handle() {
	command, argument := s.get(regCommand, 4), s.get(regArgument, 4)
	if command == 0 {
		return
	}
	s.put(regCommand, 4, 0)
	s.put(regArgument, 4, 0)
	ok := true
	switch command {
	case configureDoorbell:
		ok = s.configureDoorbells(int(argument&doorbellCount), argument&msixEnable != 0)
	case teardownDoorbell:
		s.outbound.remove(space(barDoorbells, 0)) // the first alone: epf_ntb_teardown_db
	case configureWindow:
		ok = s.configureWindow(argument)
	case teardownWindow:
		ok = s.teardownWindow(argument)
	case linkUp:
		s.up = true
		ok = !s.peer.up || s.bridge.setLink(true)
	case linkDown:
		s.up = false
		ok = s.bridge.setLink(false)
	default:
		return
	}
	status := uint64(statusOK)
	if !ok {
		status = statusError
	}
	s.put(regStatus, 2, status)
}

// configureDoorbells has the peer's doorbells become what this side's MSI-X table has
// (epf_ntb_configure_msix). Without MSI-X there is no MSI to configure. The firmware reads
// beyond a table that has fewer vectors; the model does not.
func (s *side) configureDoorbells(n int, msix bool) bool {
	if n == 0 || n > maxDoorbells || n > s.bridge.config.Doorbells || !msix {
		return false
	}
	entry := s.peer.get(regEntrySize, 4)
	for i := range n {
		address, data, _ := s.vector(i)
		if !s.outbound.add(space(barDoorbells, uint64(i)*entry), address, entry) {
			return false
		}
		s.peer.put(regData+4*i, 4, uint64(data))
		s.peer.put(regOffset+4*i, 4, address%alignment)
	}
	s.msix = true
	return true
}

// windowSpace returns where the peer's accesses to a window of this side's memory are in outbound space. The
// firmware reads beyond its arrays if there is no such window; the model does not.
func (s *side) windowSpace(window uint64) (uint64, bool) {
	if window >= uint64(len(s.bridge.config.Windows)) {
		return 0, false
	}
	if window == 0 {
		return space(barDoorbells, s.get(regWindow1, 4)), true
	}
	return space(barDoorbells+int(window), 0), true
}

// configureWindow has a window of the peer's lead to memory of this side (epf_ntb_configure_mw). Other
// translations of the window stay.
func (s *side) configureWindow(window uint64) bool {
	at, ok := s.windowSpace(window)
	size := s.get(regSize, 8)
	if !ok || size > uint64(s.bridge.config.Windows[window]) {
		return false
	}
	return s.outbound.add(at, s.get(regAddress, 8), size)
}

func (s *side) teardownWindow(window uint64) bool {
	at, ok := s.windowSpace(window)
	if ok {
		s.outbound.remove(at)
	}
	return ok
}

// setLink sets the link's state for both sides and interrupts them (epf_ntb_link_up). It ends
// at a side whose driver has enabled no interrupts, and reports whether there was none.
func (b *Bridge) setLink(up bool) bool {
	for _, s := range b.sides {
		link := s.get(regLink, 2) &^ linkIsUp
		if up {
			link |= linkIsUp
		}
		s.put(regLink, 2, link)
		address, data, enabled := s.vector(linkVector)
		if !s.msix || !enabled {
			return false // of cdns_pcie_ep_raise_irq
		}
		if s.connected() {
			s.machine.Message(address, data)
		}
	}
	return true
}

// vector returns the message of a vector of the side's MSI-X table, and whether its machine has enabled MSI-X.
func (s *side) vector(v int) (address uint64, data uint32, enabled bool) {
	if s.machine == nil {
		return 0, 0, false
	}
	return s.machine.Vector(v)
}
