package selftest

import (
	"fmt"
	"time"

	"github.com/ntbnet/ntbnet/ntb"
)

// endWithin is how long it may take until a session that ends shows at the other side, besides Options.Late.
const endWithin = 5 * time.Second

// relink has each side end a session in turn. The other one must notice, and the next session must find nothing
// of the one before, although the side that ended it goes on storing.
func (t *test) relink() error {
	c := Check{Name: "link", Pass: true}
	for turn := range 2 {
		if turn > 0 {
			if err := t.meet(); err != nil {
				return err
			}
		}
		ends := t.first == (turn == 0)
		old, stale, bells := t.dev, t.out, t.bells
		start := time.Now()
		if ends {
			old.Disable()
			t.scribble(stale)
		} else if err := t.await(endWithin+t.o.Late, func() bool { return false }); err == errLate {
			c.fail("the other side has ended the session, and the link was not down within %v", endWithin+t.o.Late)
		} else if err != errLost {
			return err
		}
		took := time.Since(start)
		err := t.open()
		if ends && err == nil {
			t.scribble(stale)
		}
		if e := old.Close(); err == nil {
			err = e
		}
		for range bells { // until hear has returned
		}
		if err == nil {
			err = t.meet()
		}
		if err != nil {
			return fmt.Errorf("the session after the first one: %w", err)
		}
		if !ends {
			c.MaxNS = took.Nanoseconds()
		}
		for off := roundAt; off < payloadAt+t.area; off += 8 {
			if w := ntb.Load64(t.in, off); w != 0 {
				c.fail("a new session found %#x at byte %d of its window, want zero", w, off)
				break
			}
		}
	}
	if c.Pass {
		c.Found = fmt.Sprintf("shows within %v, and the next session is clean", short(c.MaxNS))
	}
	t.ended(c)
	return nil
}

// scribble stores through a window whose session has ended.
func (t *test) scribble(w ntb.Window) {
	w.Publish64(payloadAt, t.own)
}
