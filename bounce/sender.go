package bounce

import "github.com/ntbnet/ntbnet/ntb"

// sender writes to a record queue: by stores, or from a size on by a DMA engine.
type sender struct {
	tx
	dma  *dmaTx   // nil without an engine; constant after init
	bulk ntb.Bulk // how payload behind a header is stored
}

func (s *sender) init(win ntb.Window, limit int, dma *dmaTx) {
	s.dma = dma
	inline := maxInline
	if dma != nil {
		inline = min(maxInline, dma.threshold-1)
	}
	s.tx.init(win, limit, inline)
}

// put writes the first bytes of p as one record and returns how many. It returns 0
// if there is no room for a worthwhile record. A Read is to
// return the first together bytes of p as one.
func (s *sender) put(p []byte, together int) int {
	off, n := s.reserve(len(p))
	switch {
	case n == 0:
		s.dma.flush()
	case s.dma.takes(n):
		h := makeHeader(s.seq+1, n, kindBulk.of(n, together))
		s.dma.stage(s.win, s.advance(h), s.size, s.gen, h, p[:n])
	case s.kind == kindInline:
		s.putInline(p[:n])
	default:
		s.bulk.Write(&s.win, off, p[:n])
		s.commit(n, together)
	}
	return n
}
