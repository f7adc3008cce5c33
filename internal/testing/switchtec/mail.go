package switchtec

// doorbellBlock is the block of a partition's doorbells and messages. The doorbells themselves belong to the switch:
// what one partition rings, all see, so the drivers take half of them each (switchtec_ntb_init_db in
// ntb_hw_switchtec.c).
type doorbellBlock struct {
	outMask, inMask uint64
	vectors         [64]byte
	messageMap      uint32
	out             [messages]uint32
	in              [messages]message
	seen            uint64 // pending when interrupts were last sent
}

// message is a message that was received.
type message struct {
	text, flags uint32
}

// pending returns which doorbells and messages are pending and enabled.
func (b *doorbellBlock) pending(doorbells uint64) uint64 {
	now := doorbells
	for i, m := range b.in {
		if m.flags&messageStatus != 0 && m.flags&messageMask != 0 {
			now |= 1 << (firstMessage + i)
		}
	}
	return now & b.inMask
}

// mailWord returns a word of a partition's block.
func (s *Pair) mailWord(p int, offset uint64) uint32 {
	b := &s.parts[p].mail
	switch {
	case offset == outDoorbells || offset == inDoorbells:
		return uint32(s.doorbells)
	case offset == outDoorbells+4 || offset == inDoorbells+4:
		return uint32(s.doorbells >> 32)
	case offset == outDoorbellMask:
		return uint32(b.outMask)
	case offset == outDoorbellMask+4:
		return uint32(b.outMask >> 32)
	case offset == inDoorbellMask:
		return uint32(b.inMask)
	case offset == inDoorbellMask+4:
		return uint32(b.inMask >> 32)
	case offset >= vectorMap && offset < messageMap:
		v := b.vectors[offset-vectorMap:]
		return uint32(v[0]) | uint32(v[1])<<8 | uint32(v[2])<<16 | uint32(v[3])<<24
	case offset == messageMap:
		return b.messageMap
	case offset >= outMessages && offset < inMessages:
		if i := offset - outMessages; i%8 == 0 {
			return b.out[i/8]
		}
	case offset >= inMessages && offset < inMessages+8*messages:
		m := b.in[(offset-inMessages)/8]
		if offset%8 == inMessages%8 {
			return m.text
		}
		return m.flags
	}
	return s.stranger(dbmsg + offset)
}

// isDoorbell reports whether an access to the registers is one that rings.
func isDoorbell(offset uint64) bool {
	if offset < dbmsg || offset >= dbmsg+partitions*dbmsgSize {
		return false
	}
	return (offset-dbmsg)%dbmsgSize&^7 == outDoorbells
}

// setMailWord writes the bits of mask in a word of a partition's block, by the function of partition own.
func (s *Pair) setMailWord(own, p int, offset uint64, v, mask uint32) {
	b := &s.parts[p].mail
	long := func(at *uint64) {
		shift := 8 * (offset & 4)
		*at = *at&^(uint64(mask)<<shift) | uint64(v&mask)<<shift
	}
	switch {
	case offset&^7 == outDoorbells:
		s.ring(own, b.outMask&(uint64(v&mask)<<(8*(offset&4))))
	case offset&^7 == outDoorbellMask:
		long(&b.outMask)
	case offset&^7 == inDoorbells:
		s.doorbells &^= uint64(v&mask) << (8 * (offset & 4))
	case offset&^7 == inDoorbellMask:
		long(&b.inMask)
	case offset >= vectorMap && offset < messageMap:
		for i := range 4 {
			if mask>>(8*i)&0xff != 0 {
				b.vectors[int(offset)-vectorMap+i] = byte(v >> (8 * i))
			}
		}
	case offset == messageMap:
		b.messageMap = b.messageMap&^mask | v&mask
	case offset >= outMessages && offset < inMessages:
		if i := offset - outMessages; i%8 == 0 {
			b.out[i/8] = v & mask
			s.send(p, int(i/8), v&mask)
		}
	case offset >= inMessages && offset < inMessages+8*messages && offset%8 != inMessages%8:
		m := &b.in[(offset-inMessages)/8]
		m.flags &^= v & mask & messageStatus
		m.flags = m.flags&^(messageMask&mask) | v&mask&messageMask
	}
	s.interrupt()
}

// ring rings doorbells, by the function of a partition.
func (s *Pair) ring(own int, doorbells uint64) {
	doorbells &= 1<<firstMessage - 1
	switch {
	case doorbells == 0:
		return
	case s.cut:
		s.counts[own].Lost++
		return
	}
	for i := range firstMessage {
		s.counts[own].Doorbells[i] += doorbells >> i & 1
	}
	s.doorbells |= doorbells
}

// send sends a message from a partition's outgoing register to the incoming registers that are mapped to it.
func (s *Pair) send(from, register int, text uint32) {
	if s.cut {
		return
	}
	for p := range s.parts {
		b := &s.parts[p].mail
		for i := range b.in {
			source := int(b.messageMap >> (8 * i) & 0xff)
			if p == from || source != from<<2|register || b.in[i].flags&messageStatus != 0 {
				continue
			}
			b.in[i].text = text
			b.in[i].flags = b.in[i].flags&messageMask | messageStatus | uint32(from)<<messageSource
		}
	}
}
