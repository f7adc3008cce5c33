package tunnel

import (
	"slices"

	"github.com/ntbnet/ntbnet/internal/arq"
	"github.com/ntbnet/ntbnet/internal/frame"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/lock"
)

// turnQueue is the turns that wait, the first one first. A tunnel's mu guards it.
type turnQueue []*link.Turn

func (q *turnQueue) join(w *link.Turn) {
	if !w.Waits {
		w.Waits = true
		*q = append(*q, w)
	}
}

// leave removes w, and reports whether it was there.
func (q *turnQueue) leave(w *link.Turn) bool {
	if !w.Waits {
		return false
	}
	w.Waits = false
	*q = slices.DeleteFunc(*q, func(o *link.Turn) bool { return o == w })
	return true
}

// Room implements link.Frames.
func (t *Tunnel) Room(w *link.Turn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.State() != arq.Up || t.turn(w)
}

// Leave implements link.Frames.
func (t *Tunnel) Leave(w *link.Turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.writers.leave(w) {
		t.wakeNext()
	}
}

// turn reports whether it is w's turn and there is room. If not, w joins the queue. The
// caller holds mu.
func (t *Tunnel) turn(w *link.Turn) bool {
	if (len(t.writers) == 0 || t.writers[0] == w) && t.takesData() {
		return true
	}
	t.writers.join(w)
	return false
}

// takesData reports whether there is room for data. Some room is left for words. The
// caller holds mu.
func (t *Tunnel) takesData() bool {
	if !t.late.empty() {
		return false
	}
	size := t.config.FrameBytes
	if t.arq.Reopens(t.entryFor(minPiece), size) {
		return true
	}
	return t.arq.Unsent() < maxUnsent && t.arq.Kept() < dataFrames && t.arq.Fits(size+t.spare())
}

const (
	// minPiece is the smallest piece of a larger store that is worth an entry, in
	// bytes.
	minPiece = 512
	// maxSpare is the most that data leaves for words, in bytes. dataFrames leaves
	// frames that carry them.
	maxSpare   = 4 << 10
	dataFrames = maxFrames - 72
)

// entryFor returns how many bytes a frame must have left for an entry of a store of which n
// bytes remain: room for all of them, or for a piece that is worth it.
func (t *Tunnel) entryFor(n int) int {
	return min(t.config.FrameBytes, entryHeader+min(minPiece, frame.Round8(n)))
}

// spare returns how many bytes of the retention data leaves for words. The smallest
// retention has room for four frames.
func (t *Tunnel) spare() int { return min(maxSpare, t.config.FrameBytes) }

// Data implements link.Frames.
func (t *Tunnel) Data(off int, p []byte, w *link.Turn) (n int) {
	lock.Device()
	for frames := 0; n < len(p); frames++ {
		k := t.tryFrame(off+n, p[n:], w, frames)
		if k == 0 {
			break
		}
		n += k
	}
	return n
}

// tryFrame is Data for the first bytes of p, as many as go into one frame, which is sent
// before more are stored. frames is how many there were before. Only the first one joins
// the queue. The turn is over after maxUnsent, if somebody else waits.
func (t *Tunnel) tryFrame(off int, p []byte, w *link.Turn, frames int) (n int) {
	first := frames == 0
	t.mu.Lock()
	defer t.unlockAndSend()
	switch {
	case t.State() != arq.Up:
		return len(p) // it vanishes, as with any bridge that is down
	case first && !t.turn(w), frames >= maxUnsent && len(t.writers) > 0:
		return 0
	}
	n = t.store(off, p, true)
	switch {
	case n > 0:
		t.writers.leave(w)
		t.wakeNext()
	case first:
		t.writers.join(w) // the frame that was open took the last room
	}
	return n
}

// wakeNext wakes the first turn in the queue if there is room. The caller holds mu.
func (t *Tunnel) wakeNext() {
	if len(t.writers) > 0 && t.takesData() {
		t.writers[0].Wake()
	}
}
