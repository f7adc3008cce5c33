package bounce

import "github.com/ntbnet/ntbnet/ring"

// Look calls f with what lies next in the queue, in place, or with nothing if nothing has
// arrived, and with whether the stream ends there. f returns how much of it counts as read,
// and whether it is done. If f is not done, Look calls it again: when more has arrived, if
// there was nothing. If f takes nothing of what there is, Look waits only for Close and the
// deadline. Other Reads wait meanwhile, and so does Close while f runs. The errors are
// ErrClosed, os.ErrDeadlineExceeded, and those of f.
func (c *Pair) Look(f func(next []byte, ended bool) (taken int, done bool, err error)) error {
	c.rmu.Lock()
	defer c.rmu.Unlock()
	c.rw.guessFor(1)
	for {
		end, err := c.beforeRead()
		if err != nil {
			return err
		}
		next, bad := c.rx.view()
		ended := len(next) == 0 && (bad != nil || end != goesOn)
		taken, done, err := f(next, ended)
		if taken > 0 {
			c.rx.take(taken)
			c.returnCredit()
		}
		switch {
		case err != nil || done:
			return err
		case ended || len(next) > 0 && taken == 0:
			for stopErr(c.rw.stop.Load()) == nil {
				<-c.rw.wake
			}
		case taken == 0:
			c.wait(&c.rw, ring.Data)
		}
	}
}

// OnEnd sets a function that is called when the peer's direction ends: by its FIN, a
// reset, or the end of the link. It may be called more than once. If the direction has
// ended, it is called at once. The link's goroutine calls it, so f must not wait.
func (c *Pair) OnEnd(f func()) {
	c.atEnd.Store(&f)
	c.smu.Lock()
	ended := c.removed || c.peerState() != 0 || c.rw.stop.Load()&(stopDown|stopBroken) != 0
	c.smu.Unlock()
	if ended {
		f()
	}
}

// tellEnd calls the function that OnEnd has set.
func (c *Pair) tellEnd() {
	if f := c.atEnd.Load(); f != nil {
		(*f)()
	}
}
