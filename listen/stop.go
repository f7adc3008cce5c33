package listen

// Stop refuses new connections. Accept returns those that wait, and after them ErrClosed.
// Close must still be called.
func (l *Listener) Stop() {
	l.table.mu.Lock()
	defer l.table.mu.Unlock()
	l.stop(nil)
}

// stop is Stop, with the error that Accept returns in place of ErrClosed, if not nil. The caller
// holds table.mu.
func (l *Listener) stop(why error) {
	if isClosed(l.stopped) {
		return
	}
	l.forget()
	l.failed = why
	close(l.stopped)
	l.checkDrained()
}

// Fail stops all listeners, and those that are made later. Accept returns the connections that wait,
// and after them the error. Fail returns how many listeners it stopped.
func (t *Table) Fail(why error) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed = why
	all := map[*Listener]struct{}{}
	for _, l := range t.ports {
		all[l] = struct{}{}
	}
	for _, some := range t.sockets {
		for _, l := range some {
			all[l] = struct{}{}
		}
	}
	for l := range all {
		l.stop(why)
	}
	return len(all)
}

// tookOne is called after a connection was taken out of the queue.
func (l *Listener) tookOne() {
	if isClosed(l.stopped) {
		l.table.mu.Lock()
		defer l.table.mu.Unlock()
		l.checkDrained()
	}
}

// checkDrained closes drained once no connection can come any more. The caller
// holds table.mu.
func (l *Listener) checkDrained() {
	if isClosed(l.stopped) && !isClosed(l.drained) && l.answering == 0 && len(l.queue) == 0 {
		close(l.drained)
	}
}

// end returns the error of Accept behind the last connection of a listener that is stopped.
func (l *Listener) end() error {
	if l.failed != nil {
		return l.failed
	}
	return ErrClosed
}
