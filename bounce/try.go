package bounce

import "syscall"

// TryRead is Read that returns EAGAIN where it would wait for data, or for a call that is under way.
func (c *Pair) TryRead(p []byte) (int, error) {
	n, err := c.r.tryRead(p)
	return n, c.failed(err)
}

// TryWrite is Write that writes as much as there is room for, and returns EAGAIN where it would wait for
// more, or for a call that is under way.
func (c *Pair) TryWrite(p []byte) (int, error) {
	n, err := c.w.tryWrite(p)
	return n, c.failed(err)
}

// WaitRead waits until a Read would not wait. What it would return, data or the end, is left to it. The
// errors are ErrClosed and os.ErrDeadlineExceeded.
func (c *Pair) WaitRead() error {
	return c.Look(func(next []byte, ended bool) (int, bool, error) { return 0, len(next) > 0 || ended, nil })
}

// WaitWrite waits until a Write of some bytes would not wait, likewise.
func (c *Pair) WaitWrite() error { return c.failed(c.w.await()) }

// tryRead is Pair.TryRead, likewise.
func (r *reader) tryRead(p []byte) (int, error) {
	if !r.mu.tryLock() {
		return 0, syscall.EAGAIN
	}
	defer r.mu.Unlock()
	return r.readHeld(p, false)
}

// tryWrite is Pair.TryWrite, likewise.
func (w *writer) tryWrite(p []byte) (int, error) {
	if !w.mu.tryLock() {
		return 0, syscall.EAGAIN
	}
	defer w.mu.Unlock()
	return w.writeHeld(p, false)
}

// await is Pair.WaitWrite, likewise.
func (w *writer) await() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.leaveTurn()
	for {
		stop := w.waiter.stop.Load()
		if err := stopErr(stop); err != nil {
			return err
		}
		if stop != 0 || takesNothing(w.control.state()) {
			return nil // what has ended the direction is the next write's error
		}
		if w.turn != nil && !w.control.frames.Room(w.turn) {
			w.waitTurn()
			continue
		}
		_, small := w.tx.reserve(1)
		_, large := w.tx.reserve(maxPiece)
		if small > 0 && large > 0 {
			return nil
		}
		if err := w.makeRoom(); err != nil {
			return err
		}
	}
}
