package ring

import "github.com/ntbnet/ntbnet/internal/link"

// watches are the watches of a tunnel, by the line's number in the window.
type watches map[int][]*link.Watch

// Watch implements Frames.
func (t *tunnel) Watch(w *link.Watch, first int) {
	t.rmu.Lock()
	defer t.rmu.Unlock()
	for i, line := range w.Lines {
		if i == 0 || line != w.Lines[0] {
			t.watched[first+line] = append(t.watched[first+line], w)
		}
	}
}

// Unwatch implements Frames.
func (t *tunnel) Unwatch(w *link.Watch, first int) {
	t.rmu.Lock()
	defer t.rmu.Unlock()
	for _, line := range w.Lines {
		t.watched.remove(first+line, w)
	}
}

func (m watches) remove(line int, w *link.Watch) {
	list := m[line]
	for i := range list {
		if list[i] == w {
			list[i] = list[len(list)-1]
			list[len(list)-1] = nil
			list = list[:len(list)-1]
			break
		}
	}
	if len(list) == 0 {
		delete(m, line)
	} else {
		m[line] = list
	}
}

// published wakes those that watch the word at off. The caller holds rmu.
func (t *tunnel) published(off int) {
	for _, w := range t.watched[off/64] {
		w.Wake()
	}
}

// Announce implements Frames. All is one frame.
func (t *tunnel) Announce(bit int, v uint32, places ...int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current() != tunnelUp {
		return
	}
	for _, off := range places {
		t.update(off, uint64(v), 4)
	}
	t.ring(bit)
}
