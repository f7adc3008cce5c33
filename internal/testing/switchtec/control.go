package switchtec

// controlBlock is the NT control block of a partition: where the windows in its function's BAR 2 go, and
// for whom.
type controlBlock struct {
	status   uint32
	barError uint32
	written  words // what a side that has locked the block has written
	used     words // what the switch uses, since the last opCfg
}

// words are the words of a control block. Those before barEntries are not kept here.
type words [controlSize / 4]uint32

func (c *controlBlock) reset() {
	*c = controlBlock{status: statusNormal}
	c.written[barEntry(0)] = barValid
	for i := range requesterIDs {
		// Also before drivers write: quirk_switchtec_ntb_dma_alias in drivers/pci/quirks.c reads them.
		c.written[requesterTable/4+i] = uint32(i) << requesterProxy
	}
	c.used = c.written
}

// barEntry returns the index of a word of the entry of windowBAR.
func barEntry(word int) int { return (barEntries+windowBAR*barEntriesEvery)/4 + word }

// barExtEntry is the index of the upper half of the direct window's size.
const barExtEntry = (barExtEntries + windowBAR*barEntriesEvery) / 4

// word returns a word of the block.
func (c *controlBlock) word(offset uint64) uint32 {
	switch offset {
	case partitionStatus:
		return c.status
	case barError:
		return c.barError
	case lutCount:
		return lutEntries
	case requesterCount:
		return requesterIDs
	}
	return c.written[offset/4]
}

// setWord writes the bits of mask in a word of the block.
func (c *controlBlock) setWord(offset uint64, v, mask uint32) {
	if offset == partitionOp {
		c.do(v & mask)
		return
	}
	if c.status != statusLocked {
		return
	}
	i := int(offset / 4)
	at := &c.written[i]
	switch {
	case i == barEntry(0):
		*at = *at&^mask | v&mask | barValid
	case i > barEntry(0) && i <= barEntry(3), i == barExtEntry, offset >= lutTable && offset < lutEnd:
		*at = *at&^mask | v&mask
	case offset >= requesterTable && offset < requesterEnd:
		proxy := uint32(i-requesterTable/4) << requesterProxy
		*at = *at&^mask | v&mask
		*at = *at&(0xffff<<requesterShift|requesterValid) | proxy
	}
}

// do does an operation, if the block's state allows it.
func (c *controlBlock) do(op uint32) {
	switch {
	case op == opLock && c.status == statusNormal:
		c.status = statusLocked
	case op == opCfg && c.status == statusLocked:
		// A side that was told of an error writes again, and does not lock again (switchtec_ntb_mw_set_trans in
		// ntb_hw_switchtec.c).
		c.barError = c.written.check()
		if c.barError == 0 {
			c.used = c.written
			c.status = statusNormal
		}
	case op == opReset:
		c.written = c.used
		c.barError = 0
		c.status = statusNormal
	}
}

// check returns an error for what does not fit BAR 2.
func (w *words) check() uint32 {
	if count, shift := w.luts(); shift > 32 || count<<shift > windowsSize {
		return errorLUTSize
	}
	return 0
}

// luts returns how many windows of the table there are, and the logarithm of their size.
func (w *words) luts() (count uint64, shift uint) {
	ctl := w[barEntry(0)]
	if ctl&barLUT == 0 {
		return 0, 0
	}
	return uint64(ctl>>barLUTs) + 1, uint(ctl >> barLUTSize & 0x3f)
}

// translate returns where an access at an offset in BAR 2 goes: a partition, and an address of its machine.
func (c *controlBlock) translate(offset uint64) (partition int, address uint64, ok bool) {
	w := &c.used
	if !w.mayPass() {
		return 0, 0, false
	}
	count, shift := w.luts()
	if offset < count<<shift {
		i := offset >> shift
		if i >= lutEntries {
			return 0, 0, false
		}
		entry := w.long(lutTable/4 + 2*int(i))
		return int(entry >> lutPartition & partitionMask), replace(entry, offset, shift), entry&lutValid != 0
	}
	size := uint64(w[barEntry(1)]&directSize) | uint64(w[barExtEntry])<<32
	if w[barEntry(0)]&barDirect == 0 || offset-count<<shift >= size {
		return 0, 0, false
	}
	to := w.long(barEntry(2))
	return int(to & partitionMask), replace(to, offset, uint(w[barEntry(1)]&directPosition)), true
}

// isDirect reports whether an access at an offset in BAR 2 is to the direct window.
func (c *controlBlock) isDirect(offset uint64) bool {
	count, shift := c.used.luts()
	return offset >= count<<shift
}

// replace returns an address whose bits from shift on are those of to: windows are no sums, but have upper bits replaced
// (github.com/Microsemi/switchtec-kernel, issue 94).
func replace(to, offset uint64, shift uint) uint64 {
	low := uint64(1)<<shift - 1
	return to&^low | offset&low
}

// mayPass reports whether the requester table has the machine's processors, without which the windows are closed to them.
func (w *words) mayPass() bool {
	for i := range requesterIDs {
		if v := w[requesterTable/4+i]; v&requesterValid != 0 && v>>requesterShift == processors {
			return true
		}
	}
	return false
}

// long returns 64 bits.
func (w *words) long(i int) uint64 { return uint64(w[i]) | uint64(w[i+1])<<32 }
