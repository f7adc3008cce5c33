package link

import (
	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/ntb"
)

// Turn is a place in the line of writers that have data for a routed peer which takes
// none for now, because as much is under way as may be, or waits for the lane. It is
// used for one wait at a time. Words, which are few, have room of their own and take no
// turn.
type Turn struct {
	// Wake is called when it is this one's turn, or may be. It must not block, and may
	// be called once more after Leave.
	Wake func()

	// Waits belongs to the device, which guards it.
	Waits bool
}

// TryWrite stores the first bytes of b at off of win, a part of Remote, and returns how
// many. On a link with a mapped window these are all. It never waits. If a routed peer
// takes none now, it returns 0 and w waits in line. The caller calls TryWrite or Room
// again when w is woken, or Leave.
//
// Everything else that is stored for a peer never waits either: what finds no room is
// kept, and follows in its order. So only data must ask.
func (p *Peer) TryWrite(win *ntb.Window, off int, b []byte, w *Turn) int {
	lock.Device()
	if p.frames == nil {
		win.Write(off, b)
		return len(b)
	}
	to := win.Slice(off, len(b))
	return p.frames.TryStore(to.Offset(), b, w)
}

// Room reports whether TryWrite would store something. If not, w waits in line.
func (p *Peer) Room(w *Turn) bool {
	return p.frames == nil || p.frames.Room(w)
}

// Leave ends the wait of w, if it waits.
func (p *Peer) Leave(w *Turn) {
	if p.frames != nil {
		p.frames.Leave(w)
	}
}
