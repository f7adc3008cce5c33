package link

import (
	"time"

	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/ntb"
)

// What some devices can do and others need not, as Caps states it.

// TryWrite stores the first bytes of b at off of win, a part of Remote, and returns how
// many. These are all unless Caps().Paced is set. It never waits. If the device takes none
// now, it returns 0 and w waits in line. The caller calls TryWrite or Room again when w is
// woken, or Leave.
//
// Other stores to a peer need not ask for room, and never wait: what finds none is kept,
// and follows in its order.
func (p *Peer) TryWrite(win *ntb.Window, off int, b []byte, w *ntb.Turn) int {
	lock.Device()
	if !p.caps.Paced {
		win.Write(off, b)
		return len(b)
	}
	to := win.Slice(off, len(b))
	return p.frames.TryStore(to.Offset(), b, w)
}

// Room reports whether TryWrite would store something. If not, w waits in line.
func (p *Peer) Room(w *ntb.Turn) bool { return !p.caps.Paced || p.frames.Room(w) }

// Leave ends the wait of w, if it waits.
func (p *Peer) Leave(w *ntb.Turn) {
	if p.caps.Paced {
		p.frames.Leave(w)
	}
}

// Watch begins to watch for w, whose lines are those of Local. See [ntb.Frames]. Caps().Watches
// must be set.
func (p *Peer) Watch(w *ntb.Watch) { p.frames.Watch(w, p.localLine()) }

// Unwatch ends the watch for w.
func (p *Peer) Unwatch(w *ntb.Watch) { p.frames.Unwatch(w, p.localLine()) }

// localLine returns the number of Local's first line in the window.
func (p *Peer) localLine() int { return (len(p.in) - len(p.local)) / 64 }

// Deliver waits until what was stored before has arrived at the peer, or the link
// is down, or it has acknowledged nothing for d, and for 5 d at the most. Unless
// Caps().Delayed is set, what is stored is there.
func (p *Peer) Deliver(d time.Duration) {
	if p.caps.Delayed {
		p.frames.Deliver(d)
	}
}

// TakeFrames takes what has come for this process, and reports whether it has taken something.
// See [ntb.Frames]. Caps().Watches must be set.
func (p *Peer) TakeFrames() bool { return p.frames.Poll() }

// Rest ends the calls of TakeFrames. It is called before the caller sleeps.
func (p *Peer) Rest() { p.frames.Rest() }
