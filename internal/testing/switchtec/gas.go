package switchtec

import "slices"

// word returns a word of the registers in BAR 0, as the function of partition own reads it.
func (s *Pair) word(own int, offset uint64) uint32 {
	if p, at, ok := block(offset, control, controlSize, partitions); ok {
		return s.parts[p].control.word(at)
	}
	if p, at, ok := block(offset, dbmsg, dbmsgSize, partitions); ok {
		return s.mailWord(p, at)
	}
	if p, at, ok := block(offset, partConfig, partConfigSize, partitions); ok {
		return s.partConfigWord(p, at)
	}
	if port, at, ok := block(offset, portCSR, portCSRSize, ports); ok {
		return s.portWord(port, at)
	}
	switch {
	case offset == mrpcDMA || offset >= switchEvents && offset < switchEventsEnd:
		return 0
	case offset >= control && offset < control+mostPartitions*controlSize:
		// quirk_switchtec_ntb_dma_alias in drivers/pci/quirks.c takes the first target_part_low for the upper half of
		// ep_map, looks at the block of partition 33, and warns: "Partition 33 table_sz 0".
		return 0
	case offset >= portCSR:
		return noPort
	case offset == sysInfo+deviceID:
		return device
	case offset == sysInfo+partitionID:
		return uint32(own)
	case offset == ntbInfo+partitionCount:
		return partitions | uint32(own)<<8
	case offset == ntbInfo+endpointMap:
		return 1<<partitions - 1
	case offset == ntbInfo+requesterID:
		return processors
	case offset == ntbInfo+targets+targetLow:
		return 1 << 1
	case offset == ntbInfo+targets+targetsEvery+targetLow:
		return 1 << 0
	}
	if offset >= ntbInfo && offset < ntbInfo+targets+mostPartitions*targetsEvery {
		return 0
	}
	return s.stranger(offset)
}

// setWord writes the bits of mask in a word of the registers.
func (s *Pair) setWord(own int, offset uint64, v, mask uint32) {
	if p, at, ok := block(offset, control, controlSize, partitions); ok {
		s.parts[p].control.setWord(at, v, mask)
		return
	}
	if p, at, ok := block(offset, dbmsg, dbmsgSize, partitions); ok {
		s.setMailWord(own, p, at, v, mask)
		return
	}
	if port, at, ok := block(offset, portCSR, portCSRSize, ports); ok && at == linkStateEvent {
		e := &s.events[port]
		*e &^= v & mask & eventOccurred
		*e = *e&^(eventEnables&mask) | v&mask&eventEnables
		return
	}
	if _, at, ok := block(offset, partConfig, partConfigSize, partitions); ok && at >= partEvents && at < partEventsEnd {
		return
	}
	s.stranger(offset)
}

// block returns in which of count blocks an offset is, and where in it.
func block(offset, first, size uint64, count int) (i int, at uint64, ok bool) {
	if offset < first || offset >= first+size*uint64(count) {
		return 0, 0, false
	}
	return int((offset - first) / size), (offset - first) % size, true
}

// partConfigWord returns a word of a partition's configuration.
func (s *Pair) partConfigWord(p int, at uint64) uint32 {
	switch {
	case at == upstreamPort:
		return uint32(upstreamOf(p))
	case at == endpointPort:
		return uint32(endpointOf(p))
	case at >= downstreamPorts && at < downstreamEnd:
		return noPort
	case at == vectorNumbers:
		return eventVector
	case at >= partEvents && at < partEventsEnd:
		return 0
	}
	return s.stranger(partConfig + at)
}

// portWord returns a word of a port's registers.
func (s *Pair) portWord(port int, at uint64) uint32 {
	switch {
	case at == portID:
		return vendor | device<<16
	case at == linkStatus:
		return linkGen4x16 << 16
	case at == linkStateEvent:
		return s.events[port]
	case at >= portEvents && at < portEventsEnd:
		return 0
	}
	return s.stranger(portCSR + at)
}

// stranger notes a register that a driver has used and the model does not have.
func (s *Pair) stranger(offset uint64) uint32 {
	if !slices.Contains(s.strangers, offset) {
		s.strangers = append(s.strangers, offset)
	}
	return 0
}
