package ring

import (
	"slices"

	"github.com/ntbnet/ntbnet/internal/link"
)

// watches are the watches of a tunnel, by the line's number in the window.
type watches map[int][]*link.Watch

// Watch implements link.Frames.
func (t *tunnel) Watch(w *link.Watch) {
	t.inbound.mu.Lock()
	defer t.inbound.mu.Unlock()
	for i, line := range w.Lines {
		if i == 0 || line != w.Lines[0] {
			t.inbound.watched[t.inbound.first+line] = append(t.inbound.watched[t.inbound.first+line], w)
		}
	}
}

// Unwatch implements link.Frames.
func (t *tunnel) Unwatch(w *link.Watch) {
	t.inbound.mu.Lock()
	defer t.inbound.mu.Unlock()
	for _, line := range w.Lines {
		t.inbound.watched.remove(t.inbound.first+line, w)
	}
}

func (m watches) remove(line int, w *link.Watch) {
	m[line] = slices.DeleteFunc(m[line], func(o *link.Watch) bool { return o == w })
	if len(m[line]) == 0 {
		delete(m, line)
	}
}
