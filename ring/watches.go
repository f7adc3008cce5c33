package ring

import (
	"slices"

	"github.com/ntbnet/ntbnet/internal/arq"
	"github.com/ntbnet/ntbnet/ntb"
)

// watches are the watches of a tunnel, by the line's number in the window.
type watches map[int][]*ntb.Watch

// Watch implements ntb.Frames.
func (t *tunnel) Watch(w *ntb.Watch, first int) {
	t.inbound.mu.Lock()
	defer t.inbound.mu.Unlock()
	for i, line := range w.Lines {
		if i == 0 || line != w.Lines[0] {
			t.inbound.watched[first+line] = append(t.inbound.watched[first+line], w)
		}
	}
}

// Unwatch implements ntb.Frames.
func (t *tunnel) Unwatch(w *ntb.Watch, first int) {
	t.inbound.mu.Lock()
	defer t.inbound.mu.Unlock()
	for _, line := range w.Lines {
		t.inbound.watched.remove(first+line, w)
	}
}

func (m watches) remove(line int, w *ntb.Watch) {
	m[line] = slices.DeleteFunc(m[line], func(o *ntb.Watch) bool { return o == w })
	if len(m[line]) == 0 {
		delete(m, line)
	}
}

// Announce implements ntb.Frames. All is one frame.
func (t *tunnel) Announce(bit int, v uint32, offsets ...int) {
	t.mu.Lock()
	defer t.unlockAndSend()
	if t.current() != arq.Up {
		return
	}
	for _, off := range offsets {
		t.update(off, uint64(v), 4)
	}
	t.ring(bit)
}
