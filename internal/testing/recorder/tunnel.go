package recorder

import "encoding/binary"

// tunnelKey identifies a tunnel: its ends, the lower id first, and its epoch.
type tunnelKey struct{ low, high, epoch uint32 }

// tunnel is a bridge of frames: "Frames" and "Tunnels" of docs/protocol/hops.md.
type tunnel struct {
	rec    *Recorder
	sizes  [2]int    // of the inbound windows; 0 while not known
	expect [2]uint32 // number of each side's next frame, minus one
	ledger *ledger   // nil before both sizes are known
}

// frame handles a frame where its source puts it into a lane. Frames that are sent
// again are recognized by their numbers.
func (r *Recorder) frame(kind byte, f []byte) {
	le := binary.LittleEndian
	src, dst := le.Uint32(f[8:]), le.Uint32(f[12:])
	key, x := tunnelKey{src, dst, le.Uint32(f[24:])}, 0
	if src > dst {
		key.low, key.high, x = dst, src, 1
	}
	t := r.tunnels[key]
	switch kind {
	case frameOpen, frameAccept:
		if t == nil {
			t = &tunnel{rec: r}
			r.tunnels[key] = t
		}
		t.sizes[x] = int(le.Uint32(f[44:])) << 10
		if t.ledger == nil && t.sizes[0] > 0 && t.sizes[1] > 0 {
			t.ledger = newLedger(r, t.sizes, [2][]byte{})
			t.ledger.ids = [2]uint32{key.low, key.high}
			r.ledgers = append(r.ledgers, t.ledger)
		}
	case frameData:
		if t == nil || t.ledger == nil || le.Uint32(f[28:]) != t.expect[x]+1 {
			return
		}
		t.expect[x]++
		t.entries(x, f[frameHeader:])
	}
}

// entries handles the body of a frame of side x.
func (t *tunnel) entries(x int, body []byte) {
	le := binary.LittleEndian
	for len(body) >= 8 {
		w := le.Uint64(body)
		off, n := int(uint32(w)), int(w>>32&0xffffff)
		body = body[8:]
		if n > len(body) {
			t.rec.violated(&t.ledger.log, "an entry of %d bytes in a body with %d left", n, len(body))
			return
		}
		p := body[:n]
		body = body[min(len(body), (n+7)&^7):]
		switch kind := w >> 56; {
		case kind == 1:
			t.ledger.store(x, store{op: opStore, off: off, n: n, p: p})
		case kind == 2 && n == 8:
			t.ledger.store(x, word(opStore64, off, le.Uint64(p), 8))
		case kind == 3 && n == 8:
			t.pass(x, word(opPublish64, off, le.Uint64(p), 8))
		case kind == 3 && n == 4:
			t.pass(x, word(opPublish32, off, uint64(le.Uint32(p)), 4))
		default:
			t.rec.violated(&t.ledger.log, "an entry of kind %d and %d bytes", kind, n)
			return
		}
	}
}

// pass checks a word. A frame carries it all at once.
func (t *tunnel) pass(x int, st store) {
	if c := t.ledger.store(x, st); c != nil {
		c.taken = false
	}
}
