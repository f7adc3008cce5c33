package bounce

import "github.com/ntbnet/ntbnet/ring"

// Look calls f with what lies next in the queue, in place, and nothing if nothing has
// arrived, and whether the stream ends there. f returns how much of it counts as read, and
// whether it is done. If it is not, Look calls it again, once more has arrived if there was
// nothing; where f has taken nothing of what there was, there is nothing to wait for but
// Close and the deadline. Other Reads wait meanwhile, and so does Close while f runs. The
// errors are ErrClosed, os.ErrDeadlineExceeded, and f's own.
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

// OnEnd makes f be called when the peer's direction ends: by its FIN, a reset, or the end
// of the link; more than once, perhaps, and at once if it has ended. The link's goroutine
// calls it: f must not wait.
func (c *Pair) OnEnd(f func()) {
	c.atEnd.Store(&f)
	c.smu.Lock()
	ended := c.removed || c.peerState() != 0 || c.rw.stop.Load()&(stopDown|stopBroken) != 0
	c.smu.Unlock()
	if ended {
		f()
	}
}

// tellEnd calls what OnEnd has set.
func (c *Pair) tellEnd() {
	if f := c.atEnd.Load(); f != nil {
		(*f)()
	}
}
