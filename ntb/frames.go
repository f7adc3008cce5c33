package ntb

import "time"

// Frames are the abilities of a device whose stores are frames, which this process sends and
// takes: a tunnel over several bridges. The device's [Caps] say which of them it has.
//
// A device around a device passes them on with its Caps. One that moves its window, holds
// stores back or has to see all of them takes them out: see [Caps.WithoutFrames].
type Frames interface {
	// Announce publishes v at several offsets of the peer's window, in this order, and rings
	// doorbell bit behind them. It works if Caps.Sequenced is set.
	Announce(bit int, v uint32, offsets ...int)

	// Watch begins to watch for w, which must not be watched for yet. Its lines are counted
	// from line first of the inbound window. A goroutine that checks the lines after it
	// misses nothing: either what the peer publishes is there, or w is woken. Watch and
	// Unwatch work if Caps.Watches is set.
	Watch(w *Watch, first int)
	// Unwatch ends the watch for w.
	Unwatch(w *Watch, first int)

	// Poll takes what has come for this process, unless another goroutine is doing that. It
	// reports whether it has taken something. A goroutine that polls for what is published
	// calls it between its looks. It never waits.
	Poll() bool
	// Rest ends the calls of Poll. It is called before the caller sleeps.
	Rest()

	// TryStore stores the first bytes of p at off of the outbound window, and returns how
	// many. It never waits. If there is no room it returns 0, and w waits in line. The caller
	// then calls TryStore or Room again when w is woken, or Leave. The three work if
	// Caps.Paced is set.
	TryStore(off int, p []byte, w *Turn) int
	// Room reports whether TryStore would store something. If not, w waits in line.
	Room(w *Turn) bool
	// Leave ends the wait of w, if it waits.
	Leave(w *Turn)

	// Deliver waits until the peer has what was stored before, the link is down, or it has
	// acknowledged nothing for d, and for 5 d at the most. It works if Caps.Delayed is set.
	Deliver(d time.Duration)
}

// WithoutFrames returns what is left of the properties without Frames.
func (c Caps) WithoutFrames() Caps {
	c.Sequenced, c.Watches, c.Paced, c.Delayed, c.Frames = false, false, false, false, nil
	return c
}

// Watch is a waiter of this process for words that the peer publishes. It is used for one
// wait at a time.
type Watch struct {
	// Wake is called after a word was published in one of the Lines. It must not
	// block, and may be called once more after Unwatch.
	Wake func()
	// Lines are 64-byte lines, by number. They may be the same.
	Lines [2]int
}

// Turn is an entry in the queue of writers that have data for a device which takes none at
// the moment. It is used for one wait at a time.
type Turn struct {
	// Wake is called when it is this one's turn, or may be. It must not block, and may
	// be called once more after Leave.
	Wake func()
	// Waits belongs to the device, which guards it.
	Waits bool
}
