package link

import (
	"time"

	"github.com/ntbnet/ntbnet/ntb"
)

// Path leads to one peer: over a bridge, or over several by [Frames]. Inbound, Outbound, LinkUp,
// Disable and Close are those of [ntb.Device].
type Path interface {
	Caps() ntb.Caps
	Inbound() []byte
	Outbound() ntb.Window
	LinkUp() bool
	Disable()
	Close() error

	// Wake publishes v in the peer's window: at the offsets that are not 0, in their order, and
	// then at 0. Then the peer's Wait returns. It never waits.
	Wake(v uint32, offsets [2]int)
	// Park announces to the peer that a call of Wait follows, after a look at the inbound window.
	Park()
	// Wait waits until the peer has called Wake since Park, and returns nil, perhaps for no reason
	// at all. When the link goes down it returns why, at once and ever after. One goroutine calls it.
	Wait() error
}

// Frames is a path whose stores are frames, which this process sends and takes. They are in one
// sequence, of which nothing is lost while the link is up. No store waits: what finds no room
// is kept, and follows in its order. Data asks for room first.
type Frames interface {
	Path

	// Data stores the first bytes of p at off of the outbound window, and returns how many. It
	// never waits. If there is no room it returns 0, and w waits in line. The caller then calls
	// Data or Room again when w is woken, or Leave.
	Data(off int, p []byte, w *Turn) int
	// Room reports whether Data would store something. If not, w waits in line.
	Room(w *Turn) bool
	// Leave ends the wait of w, if it waits.
	Leave(w *Turn)

	// Watch begins to watch for w, which must not be watched for yet. A goroutine that checks
	// the lines after it misses nothing: either what the peer publishes is there, or w is woken.
	Watch(w *Watch)
	// Unwatch ends the watch for w.
	Unwatch(w *Watch)

	// Poll takes what has come for this process, unless another goroutine is doing that. It
	// reports whether it has taken something. A goroutine that polls for what is published
	// calls it between its looks. It never waits.
	Poll() bool
	// Rest ends the calls of Poll. It is called before the caller sleeps.
	Rest()

	// Arrived waits until the peer has what was stored before, the link is down, or it has
	// acknowledged nothing for d, and for 5 d at the most.
	Arrived(d time.Duration)
}

// Watch is a waiter of this process for words that the peer publishes. It is used for one
// wait at a time.
type Watch struct {
	// Wake is called after a word was published in one of the Lines. It must not
	// block, and may be called once more after Unwatch.
	Wake func()
	// Lines are 64-byte lines of [Peer.Local], by number. They may be the same.
	Lines [2]int
}

// Turn is an entry in the queue of writers that have data for frames which take none at
// the moment. It is used for one wait at a time.
type Turn struct {
	// Wake is called when it is this one's turn, or may be. It must not block, and may
	// be called once more after Leave.
	Wake func()
	// Waits belongs to the Frames, which guard it.
	Waits bool
}
