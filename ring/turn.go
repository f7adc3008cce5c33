package ring

import (
	"slices"

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

	waits bool // guarded by tunnel.mu
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
	t := p.tunnel()
	if t == nil {
		win.Write(off, b)
		return len(b)
	}
	to := win.Slice(off, len(b))
	return t.tryStore(to.Offset(), b, w)
}

// Room reports whether TryWrite would store something. If not, w waits in line.
func (p *Peer) Room(w *Turn) bool {
	t := p.tunnel()
	if t == nil {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.current() != tunnelUp || t.turn(w)
}

// Leave ends the wait of w, if it waits.
func (p *Peer) Leave(w *Turn) {
	t := p.tunnel()
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.line.leave(w) {
		t.wakeNext()
	}
}

// line is the turns that wait, the first one first. A tunnel's mu guards it.
type line []*Turn

func (l *line) join(w *Turn) {
	if !w.waits {
		w.waits = true
		*l = append(*l, w)
	}
}

// leave removes w, and reports whether it was there.
func (l *line) leave(w *Turn) bool {
	if !w.waits {
		return false
	}
	w.waits = false
	*l = slices.DeleteFunc(*l, func(o *Turn) bool { return o == w })
	return true
}

// turn reports whether it is w's turn and there is room. If not, w waits in line. The
// caller holds mu.
func (t *tunnel) turn(w *Turn) bool {
	if (len(t.line) == 0 || t.line[0] == w) && t.takesData() {
		return true
	}
	t.line.join(w)
	return false
}

// takesData reports whether there is room for data. Some room is left for words. The
// caller holds mu.
func (t *tunnel) takesData() bool {
	if !t.late.empty() {
		return false
	}
	size := t.router.opts.FrameBytes
	if unsent := t.kept.count - t.high; unsent > 0 && t.kept.reopens(t.entryFor(minPiece), size) {
		return true
	}
	return t.kept.count-t.high < maxUnsent && t.kept.count < dataFrames && t.kept.fits(size+t.spare())
}

const (
	// minPiece is the smallest piece of a larger store that is worth an entry, in
	// bytes.
	minPiece = 512
	// maxSpare is the most that data leaves for words, in bytes. dataFrames leaves
	// frames that carry them.
	maxSpare   = 4 << 10
	dataFrames = bodyFrames - 64
)

// entryFor returns how many bytes a frame must have left for an entry of a store of which n
// bytes remain: room for all of them, or for a piece that is worth it.
func (t *tunnel) entryFor(n int) int {
	return min(t.router.opts.FrameBytes, entryHeader+min(minPiece, round8(n)))
}

// spare returns how many bytes of the retention data leaves for words. The smallest
// retention has room for four frames.
func (t *tunnel) spare() int { return min(maxSpare, t.router.opts.FrameBytes) }

// tryStore is TryWrite.
func (t *tunnel) tryStore(off int, p []byte, w *Turn) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.current() != tunnelUp:
		return len(p) // it vanishes, as with any bridge that is down
	case !t.turn(w):
		return 0
	}
	n := t.store(off, p, true)
	if n == 0 {
		t.line.join(w) // the frame that was open took the last room
		return 0
	}
	t.line.leave(w)
	t.wakeNext()
	return n
}

// wakeNext wakes the first turn in line if there is room. The caller holds mu.
func (t *tunnel) wakeNext() {
	if len(t.line) > 0 && t.takesData() {
		t.line[0].Wake()
	}
}
