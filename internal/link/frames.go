package link

import "time"

// Frames is what ntb.Caps has of a device whose stores are frames, which this process sends
// and takes.
type Frames interface {
	// Announce publishes v at several places of the other end's window, in this order,
	// and rings doorbell bit.
	Announce(bit int, v uint32, places ...int)
	// Watch begins to watch for w, whose lines are counted from line first of the window.
	Watch(w *Watch, first int)
	// Unwatch ends the watch for w.
	Unwatch(w *Watch, first int)
	// TryStore stores the first bytes of p at off, and returns how many. If there is no
	// room, w waits in line.
	TryStore(off int, p []byte, w *Turn) int
	// Room reports whether TryStore would store something. If not, w waits in line.
	Room(w *Turn) bool
	// Leave ends the wait of w, if it waits.
	Leave(w *Turn)
	// Deliver waits until the other end has what was stored before, the link is down, or
	// it has acknowledged nothing for d, and for 5 d at the most.
	Deliver(d time.Duration)
}
