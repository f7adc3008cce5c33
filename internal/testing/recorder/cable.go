package recorder

// cable is a bridge: a direct link, or lanes and a direct link behind them.
type cable struct {
	rec    *Recorder
	sizes  [2]int // of each side's inbound window
	in     [2][]byte
	direct *ledger
	spads  [2][16]uint32 // stored by each side, at the other
	known  bool          // the kind of link is known
	lanes  *lanes        // nil on a link without lanes
}

const (
	linkMagic   = 0x4e7c
	directMagic = 0x4e7b
	linkSpads   = 8
)

// spad handles a scratchpad store of side x.
func (c *cable) spad(x, i int, v uint32) {
	c.spads[x][i&15] = v
	if i == 0 && !c.known {
		c.known = true
		switch v >> 16 {
		case linkMagic:
			c.split(x)
		case directMagic:
		default:
			c.rec.violated(nil, "side %d stores the magic %#x", x, v)
		}
	}
	switch {
	case c.lanes == nil:
		// Stores from before the kind was known are those of a direct link, or were
		// replaced.
		if c.known {
			for j := range linkSpads {
				if c.spads[x][j] != 0 {
					c.direct.spad(x, j, c.spads[x][j])
				}
			}
		}
	case i >= linkSpads:
		c.rec.violated(nil, "side %d stores scratchpad %d of a link with lanes", x, i)
	case i == 1:
		c.direct.ids[x] = v
	}
}

// split divides the windows as side x has announced.
func (c *cable) split(x int) {
	shape := c.spads[x][3]
	count, slots, body := int(shape&0xff), int(shape>>8&0xffff), int(c.spads[x][4])
	if count == 0 || slots == 0 {
		c.rec.violated(nil, "side %d stores the magic of lanes before their number", x)
		return
	}
	// Lanes take a quarter of a small window, but have room for 8 frames, or 4 of two hosts.
	least := 8
	if c.spads[x][2]>>16 == 2 {
		least = 4
	}
	few := max(least, min(c.sizes[0], c.sizes[1])/4/(count*(frameHeader+body)))
	c.lanes = newLanes(c, count, min(slots, few), body)
	at := c.lanes.size
	l := newLedger(c.rec, [2]int{c.sizes[0] - at, c.sizes[1] - at}, [2][]byte{c.in[0][at:], c.in[1][at:]})
	l.scratch, l.ids, l.spads = c.direct.scratch, [2]uint32{c.spads[0][1], c.spads[1][1]}, [2]uint32{1, 1}
	for i, old := range c.rec.ledgers {
		if old == c.direct {
			c.rec.ledgers[i] = l
		}
	}
	c.direct = l
}

// store checks a store of side x.
func (c *cable) store(x int, st store) *claim {
	if c.lanes == nil {
		return c.direct.store(x, st)
	}
	if st.off < c.lanes.size {
		c.rec.stores++
		return c.lanes.store(x, st)
	}
	st.off -= c.lanes.size
	return c.direct.store(x, st)
}
