package ring

import (
	"fmt"
	"time"

	"github.com/ntbnet/ntbnet/internal/link"
)

// Store implements ntb.Sink. The bytes join the open frame. Like all stores it never
// waits: what finds no room is kept aside, and follows in its order.
func (t *tunnel) Store(off int, p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current() != tunnelUp {
		return
	}
	n := 0
	if t.late.empty() {
		n = t.store(off, p, false)
	}
	t.late.bytes(off+n, p[n:])
	t.checkLate()
}

// checkLate ends the tunnel if its other end leaves too much waiting. The caller holds mu.
func (t *tunnel) checkLate() {
	if t.late.full() {
		t.brokenLocked(fmt.Errorf("%w: %v does not take what is stored for it", link.ErrProtocol, t.remote))
	}
}

// store puts the first bytes of p into frames, as many as there is room for, and returns
// how many. If data is true, it leaves some of the room. The caller holds mu.
func (t *tunnel) store(off int, p []byte, data bool) (n int) {
	for n < len(p) {
		if !t.gather(t.entryFor(len(p)-n), data) {
			return n
		}
		k := min(len(p)-n, t.kept.left()-entryHeader, maxEntryBytes)
		b := t.kept.extend(entryHeader + round8(k))
		putWord(b, entryWord(entryData, off+n, k))
		copy(b[entryHeader:], p[n:n+k])
		clear(b[entryHeader+k:])
		n += k
	}
	return n
}

// Store64 implements ntb.Sink.
func (t *tunnel) Store64(off int, v uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.word(entryStore, off, v, 8)
}

// Publish implements ntb.Sink. It ends the open frame and sends it.
func (t *tunnel) Publish(off int, v uint64, width int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.word(entryPublish, off, v, width)
	t.flush()
}

// Update implements ntb.Sink.
func (t *tunnel) Update(off int, v uint64, width int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.update(off, v, width)
	t.flush()
}

// update publishes a word of which only the latest value counts, if the link is up. The
// caller holds mu.
func (t *tunnel) update(off int, v uint64, width int) {
	if t.current() == tunnelUp && !(t.late.empty() && t.putWord(entryPublish, off, v, width)) {
		t.late.latest(off, v, width)
	}
}

// SetPeerSpad implements ntb.Device.
func (t *tunnel) SetPeerSpad(i int, v uint32) {
	if i < 0 || i >= tunnelSpads {
		panic("ring: scratchpad out of range")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.word(entrySpad, i, uint64(v), 4)
	t.flush()
}

// word stores a word if the link is up. The caller holds mu.
func (t *tunnel) word(kind entryKind, off int, v uint64, width int) {
	if t.current() == tunnelUp && !(t.late.empty() && t.putWord(kind, off, v, width)) {
		t.late.word(kind, off, v, width)
		t.checkLate()
	}
}

// putWord puts a word into the open frame, and reports whether there was room. The
// caller holds mu.
func (t *tunnel) putWord(kind entryKind, off int, v uint64, width int) bool {
	if !t.gather(wordEntry, false) {
		return false
	}
	b := t.kept.extend(wordEntry)
	putWord(b, entryWord(kind, off, width))
	putWord(b[entryHeader:], v)
	return true
}

// gather provides an open frame with n bytes left. It returns false if there is no
// room. If data is true, it leaves some room for words. The caller holds mu.
func (t *tunnel) gather(n int, data bool) bool {
	size := t.router.opts.FrameBytes
	for {
		switch unsent := t.kept.count - t.high; {
		case t.kept.open && t.kept.left() >= n:
			return true
		case t.kept.open:
			t.endFrame()
			t.pushFrames(false)
		// A frame that could not be sent yet takes more stores.
		case unsent > 0 && t.kept.reopen(n, size):
		case unsent >= maxUnsent || data && !t.takesData():
			return false
		case t.kept.begin(size) || !data && t.kept.begin(t.spare()):
		default:
			return false
		}
	}
}

// endFrame makes a frame of the open body, if there is one. The caller holds mu.
func (t *tunnel) endFrame() {
	if t.kept.open {
		t.begins()
		t.kept.end()
	}
}

// begins is called before a frame is kept. The caller holds mu.
func (t *tunnel) begins() {
	if t.kept.count == 0 {
		t.silent = time.Now()
	}
}

// flush ends the open frame and sends it. The caller holds mu.
func (t *tunnel) flush() {
	if t.kept.open {
		t.endFrame()
		t.push(false)
	}
}

// refill moves what was kept aside into frames, as far as there is room, and then lets
// the next one in line store. It reports whether there is something to send. The caller
// holds mu.
func (t *tunnel) refill() (more bool) {
	was := t.kept.count + t.high
	for !t.late.empty() && !t.ended {
		s := t.late.next()
		if s.kind == entryData {
			n := t.store(s.off, s.data, false)
			s.off, s.data = s.off+n, s.data[n:]
			if len(s.data) > 0 {
				break
			}
		} else if s.kind != 0 && !t.putWord(s.kind, s.off, s.v, s.n) {
			break
		}
		t.late.pop()
	}
	t.endFrame()
	t.signal()
	t.wakeNext()
	return t.kept.count+t.high != was
}

// RingDoorbell implements ntb.Device. It never waits. The bit goes with a frame
// that is not sent yet, or in one of its own, which takes no room.
func (t *tunnel) RingDoorbell(bit int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current() == tunnelUp {
		t.ring(bit)
	}
}

// ring is RingDoorbell. The caller holds mu.
func (t *tunnel) ring(bit int) {
	t.bell |= 1 << bit
	t.endFrame()
	t.signal()
	t.push(false)
}

// signal puts doorbells, and an order to ask for or to answer, into a frame, behind
// everything that was stored before. The caller holds mu.
func (t *tunnel) signal() {
	if t.bell|t.ask|t.answer == 0 || t.ended || !t.late.empty() {
		return
	}
	switch {
	case t.kept.count > t.high:
		f := t.kept.at(t.kept.count - 1)
		f.bells |= t.bell
		// Of several orders, and of several answers, the last one covers all.
		if t.ask != 0 {
			f.ask = t.ask
		}
		if t.answer != 0 {
			f.answer = t.answer
		}
	case t.kept.count < maxFrames-2:
		t.begins()
		t.kept.push(retained{bells: t.bell, ask: t.ask, answer: t.answer})
	default:
		return // when acknowledgements come
	}
	t.bell, t.ask, t.answer = 0, 0, 0
}
