package tunnel

import (
	"fmt"
	"time"

	"github.com/ntbnet/ntbnet/internal/arq"
	"github.com/ntbnet/ntbnet/internal/frame"
	"github.com/ntbnet/ntbnet/internal/link"
)

// Store implements ntb.Sink. The bytes join the open frame. Like all stores it never
// waits: what finds no room is kept aside, and follows in its order.
func (t *Tunnel) Store(off int, p []byte) {
	for len(p) > 0 {
		n := t.storeFrame(off, p)
		off, p = off+n, p[n:]
	}
}

// storeFrame is Store for the first bytes of p, as many as go into one frame, which is sent
// before more are stored. It returns how many.
func (t *Tunnel) storeFrame(off int, p []byte) (n int) {
	t.mu.Lock()
	defer t.unlockAndSend()
	if t.State() != arq.Up {
		return len(p)
	}
	if t.late.empty() {
		n = t.store(off, p, false)
	}
	if n == 0 {
		t.late.bytes(off, p)
		t.checkLate()
		n = len(p)
	}
	return n
}

// checkLate ends the tunnel if its other end leaves too much waiting. The caller holds mu.
func (t *Tunnel) checkLate() {
	if t.late.full() {
		t.broken(fmt.Errorf("%w: %v does not take what is stored for it", link.ErrProtocol, t.Remote))
	}
}

// store puts the first bytes of p into a frame, as many as there is room for, and returns
// how many. If these are not all, the frame is complete. If data is true, store leaves some of
// the room. The caller holds mu.
func (t *Tunnel) store(off int, p []byte, data bool) (n int) {
	if !t.gather(t.entryFor(len(p)), data) {
		return 0
	}
	n = min(len(p), t.arq.Left()-entryHeader, maxEntryBytes)
	b := t.arq.Extend(entryHeader + frame.Round8(n))
	putWord(b, entryWord(entryData, off, n))
	copy(b[entryHeader:], p[:n])
	clear(b[entryHeader+n:])
	if n < len(p) {
		t.arq.EndFrame(time.Now())
	}
	return n
}

// Store64 implements ntb.Sink.
func (t *Tunnel) Store64(off int, v uint64) {
	t.mu.Lock()
	defer t.unlockAndSend()
	t.word(entryStore, off, v, 8)
}

// Publish implements ntb.Sink. It ends the open frame and sends it.
func (t *Tunnel) Publish(off int, v uint64, width int) {
	t.mu.Lock()
	defer t.unlockAndSend()
	t.word(entryPublish, off, v, width)
	t.flush()
}

// Update implements ntb.Sink.
func (t *Tunnel) Update(off int, v uint64, width int) {
	t.mu.Lock()
	defer t.unlockAndSend()
	t.update(off, v, width)
	t.flush()
}

// update publishes a word of which only the latest value counts, if the link is up. The
// caller holds mu.
func (t *Tunnel) update(off int, v uint64, width int) {
	if t.State() == arq.Up && !(t.late.empty() && t.putWord(entryPublish, off, v, width)) {
		t.late.latest(off, v, width)
	}
}

// word stores a word if the link is up. The caller holds mu.
func (t *Tunnel) word(kind entryKind, off int, v uint64, width int) {
	if t.State() == arq.Up && !(t.late.empty() && t.putWord(kind, off, v, width)) {
		t.late.word(kind, off, v, width)
		t.checkLate()
	}
}

// putWord puts a word into the open frame, and reports whether there was room. The
// caller holds mu.
func (t *Tunnel) putWord(kind entryKind, off int, v uint64, width int) bool {
	if !t.gather(wordEntry, false) {
		return false
	}
	b := t.arq.Extend(wordEntry)
	putWord(b, entryWord(kind, off, width))
	putWord(b[entryHeader:], v)
	return true
}

// gather provides an open frame with n bytes left. It returns false if there is no
// room. If data is true, it leaves some room for words. The caller holds mu.
func (t *Tunnel) gather(n int, data bool) bool {
	size := t.config.FrameBytes
	for {
		switch {
		case t.arq.Gathering() && t.arq.Left() >= n:
			return true
		case t.arq.Gathering():
			t.arq.EndFrame(time.Now())
		// A frame that could not be sent yet takes more stores.
		case t.arq.Reopen(n, size):
		case t.arq.Unsent() >= maxUnsent || data && !t.takesData():
			return false
		case t.arq.Begin(size) || !data && t.arq.Begin(t.spare()):
		default:
			return false
		}
	}
}

// flush ends the open frame. The caller holds mu.
func (t *Tunnel) flush() {
	if t.arq.Gathering() {
		now := time.Now()
		t.arq.EndFrame(now)
		t.push(now)
	}
}

// refill moves what was kept aside into frames, as far as there is room, and then lets
// the next writer store. The caller holds mu.
func (t *Tunnel) refill(now time.Time) {
	if t.arq.State().Over() {
		return
	}
	refilled := false
	for t.refillOne() {
		refilled = true
	}
	if refilled {
		t.arq.EndFrame(now)
	}
	t.ask(now)
	if t.late.empty() {
		t.arq.Finish(now)
	}
	t.wakeNext()
}

// refillOne moves the oldest store that was kept aside into frames. It reports whether there
// was one, and room for all of it. The caller holds mu.
func (t *Tunnel) refillOne() bool {
	if t.late.empty() {
		return false
	}
	s := t.late.next()
	switch {
	case s.kind == 0:
	case s.kind != entryData:
		if !t.putWord(s.kind, s.off, s.v, s.n) {
			return false
		}
	default:
		for len(s.data) > 0 {
			n := t.store(s.off, s.data, false)
			if n == 0 {
				return false
			}
			s.off, s.data = s.off+n, s.data[n:]
		}
	}
	t.late.pop()
	return true
}

// Wake implements link.Path. All is one frame.
func (t *Tunnel) Wake(v uint32, offsets [2]int) {
	t.mu.Lock()
	defer t.unlockAndSend()
	for _, off := range offsets {
		if off != 0 {
			t.update(off, uint64(v), 4)
		}
	}
	t.update(0, uint64(v), 4)
	t.flush()
}
