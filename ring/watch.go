package ring

// Watch is a waiter here for words that a routed peer publishes. Everything that the
// peer stores passes through this process. So the waiter need not tell the peer, nor
// wait until the peer knows. A Watch is used for one wait at a time.
type Watch struct {
	// Wake is called after a word was published in one of the Lines. It must not
	// block, and may be called once more after Unwatch.
	Wake func()
	// Lines are 64-byte lines of Local, by number: offset / 64. They may be the same.
	Lines [2]int
}

// Watch begins to watch for w, which must not be watched for yet. A goroutine that
// checks the lines after it misses nothing: either what the peer publishes is there, or
// w is woken. The peer must be routed.
func (p *Peer) Watch(w *Watch) { p.tunnel().watchLines(w, p.localLine()) }

// Unwatch ends the watch for w.
func (p *Peer) Unwatch(w *Watch) { p.tunnel().unwatch(w, p.localLine()) }

// localLine returns the number of Local's first line in the window.
func (p *Peer) localLine() int { return (len(p.in) - len(p.local)) / 64 }

// watches are the watches of a tunnel, by the line's number in the window.
type watches map[int][]*Watch

func (t *tunnel) watchLines(w *Watch, first int) {
	t.rmu.Lock()
	defer t.rmu.Unlock()
	for i, line := range w.Lines {
		if i == 0 || line != w.Lines[0] {
			t.watched[first+line] = append(t.watched[first+line], w)
		}
	}
}

func (t *tunnel) unwatch(w *Watch, first int) {
	t.rmu.Lock()
	defer t.rmu.Unlock()
	for _, line := range w.Lines {
		t.watched.remove(first+line, w)
	}
}

func (m watches) remove(line int, w *Watch) {
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

// announce publishes v at several places of the other end's window, in this order, and
// rings the doorbell of its link's goroutine, all in one frame.
func (t *tunnel) announce(v uint32, places ...int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current() != tunnelUp {
		return
	}
	for _, off := range places {
		t.update(off, uint64(v), 4)
	}
	t.ring(doorbellBit)
}
