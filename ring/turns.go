package ring

import (
	"slices"
	"time"
)

const (
	// holdFor is how long a lane's only free slot is left alone when it is the turn of
	// this process' own traffic, which needs two.
	holdFor = 20 * time.Microsecond
	// leadFrames is how many of the largest frames either kind of traffic may be ahead
	// of the other.
	leadFrames = 32
	// aheadFrames is how many of the largest frames own traffic must be ahead before it
	// gives way to forwarded frames that have yet to come.
	aheadFrames = 4
	// mostSkipped is for how many turns at most the slot is not left alone, after that
	// brought nothing.
	mostSkipped = 15
)

// turns decides whose frame goes into a lane next. Own and forwarded traffic share the lane
// by bytes, and so do the sources of each: this is deficit round robin in two stages, with
// the deficits paid after the frame. A kind of traffic that may not go is passed over and
// keeps what it is owed.
//
// It is a step function. It has no lock, no clock and no frames.
type turns[S comparable] struct {
	// Immutable.
	needs   int  // slots that must be free for a frame of this process' own, see the bubble rule
	quantum int  // bytes of the largest frame
	noHold  bool // the last free slot is never left alone

	forwarded []account[S] // sources of frames to be forwarded, in turn
	own       []account[S] // sources of this process' own traffic, in turn
	gone      [2]gone[S]   // of forwarded and of own traffic
	// lead is by how many bytes own traffic is ahead of forwarded traffic, at most
	// leadFrames frames either way.
	lead int

	held    time.Time // since when the last free slot is left alone; zero: it is not
	backoff int       // grows with holds that brought nothing
	skip    int       // number of turns without a hold
}

// account is a source that waits, and what it may still send in this round. It may send more
// than that by one frame, which it pays back.
type account[S comparable] struct {
	source S
	left   int
}

// gone keeps what a source that left may still send, so that it does not gain by coming again. It
// is that of the source that sent last. Lanes leave and come again for each frame.
type gone[S comparable] struct {
	account[S]
	valid bool
}

// turn is what next decides.
type turn uint8

const (
	turnNone    turn = iota // no source waits
	turnRoom                // the next one waits for a free slot
	turnYield               // own traffic yields to forwarded frames that have yet to come
	turnHold                // the free slot is left alone for now: ask again
	turnOwn                 // a frame of this process' own goes
	turnForward             // a frame to be forwarded goes
)

// expectation is what is known of frames to be forwarded whose lane does not wait yet.
type expectation uint8

const (
	expectNone expectation = iota
	expectSoon             // the neighbour was notified of the room that it waited for
	expectNow              // one has come that no goroutine has read, or one is at such frames
)

// next returns what goes into the lane if free slots are free, and whose that is.
func (t *turns[S]) next(free int, expected expectation, now func() time.Time) (what turn, s S) {
	own, forwarded, fits := len(t.own) > 0, len(t.forwarded) > 0, free >= t.needs
	ownTurn := own && t.lead <= 0
	switch {
	case !own && !forwarded:
		what = turnNone
	case own && fits && (ownTurn || !forwarded && !t.yields(expected)):
		if forwarded {
			t.backoff = 0
		}
		what, s = turnOwn, t.first(t.own)
	case forwarded && free > 0 && ownTurn && t.holds(now):
		return turnHold, s
	case forwarded && free > 0:
		what, s = turnForward, t.first(t.forwarded)
	case own && fits:
		what = turnYield
	default:
		what = turnRoom
	}
	t.held = time.Time{}
	return what, s
}

// yields reports whether own traffic waits for frames in transit that are expected now or soon.
// It waits for frames of soon only when it is far ahead. Otherwise the link would be idle meanwhile.
func (t *turns[S]) yields(expected expectation) bool {
	return t.lead > 0 && (expected == expectNow || expected == expectSoon && t.lead > aheadFrames*t.quantum)
}

// holds reports whether a forwarded frame leaves the only free slot alone for now, because it
// is the turn of own traffic, which needs another slot. It must not do so for long: if all
// hosts of a ring do, none gets another slot.
func (t *turns[S]) holds(now func() time.Time) bool {
	if t.noHold {
		return false
	}
	if t.skip > 0 {
		t.skip--
		return false
	}
	at := now()
	if t.held.IsZero() {
		t.held = at
	}
	if at.Sub(t.held) < holdFor {
		return true
	}
	// The hold brought nothing: the ring is full. Forwarding comes first for a while.
	t.backoff = min(2*t.backoff+1, mostSkipped)
	t.skip = t.backoff
	return false
}

// first returns the source whose turn it is. Those that have had their share of this round
// are passed over, which is the next round for them.
func (t *turns[S]) first(list []account[S]) S {
	for list[0].left <= 0 {
		a := list[0]
		a.left += t.quantum
		copy(list, list[1:])
		list[len(list)-1] = a
	}
	return list[0].source
}

// kind returns the sources of one kind that wait, and the one that has left.
func (t *turns[S]) kind(own bool) (*[]account[S], *gone[S]) {
	if own {
		return &t.own, &t.gone[1]
	}
	return &t.forwarded, &t.gone[0]
}

// join has s wait for its turn, unless it does already.
func (t *turns[S]) join(s S, own bool) {
	list, gone := t.kind(own)
	switch {
	case index(*list, s) >= 0:
	case !gone.valid || gone.source != s:
		*list = append(*list, account[S]{s, t.quantum})
	case gone.left > 0:
		*list = slices.Insert(*list, 0, gone.account)
	default:
		*list = append(*list, account[S]{s, gone.left + t.quantum})
	}
}

// pass accounts for a frame of n bytes that s forwards at once, as join, next and went would,
// if no source waits. It reports whether that is so.
func (t *turns[S]) pass(s S, n int) bool {
	if len(t.own) > 0 || len(t.forwarded) > 0 {
		return false
	}
	gone := &t.gone[0]
	if !gone.valid || gone.source != s {
		gone.account, gone.valid = account[S]{s, t.quantum}, true
	} else if gone.left <= 0 {
		gone.left += t.quantum
	}
	gone.left -= n
	t.lead = max(t.lead-n, -leadFrames*t.quantum)
	t.held = time.Time{}
	return true
}

// leave ends the wait of s.
func (t *turns[S]) leave(s S) {
	for _, own := range []bool{false, true} {
		list, last := t.kind(own)
		if i := index(*list, s); i >= 0 {
			*list = slices.Delete(*list, i, i+1)
		}
		if last.source == s {
			*last = gone[S]{}
		}
	}
}

// end ends the wait of all.
func (t *turns[S]) end() {
	t.own, t.forwarded, t.gone = nil, nil, [2]gone[S]{}
}

// went accounts for a frame of n bytes of the source that next has returned, 0 for none. It
// waits on if it has more.
func (t *turns[S]) went(own bool, n int, more bool) {
	list, last := t.kind(own)
	if own {
		t.lead = min(t.lead+n, leadFrames*t.quantum)
	} else {
		t.lead = max(t.lead-n, -leadFrames*t.quantum)
	}
	first := &(*list)[0]
	first.left -= n
	if more {
		*last = gone[S]{}
		return
	}
	*last = gone[S]{*first, true}
	*list = slices.Delete(*list, 0, 1)
}

// index returns the index of s in list, or -1.
func index[S comparable](list []account[S], s S) int {
	return slices.IndexFunc(list, func(a account[S]) bool { return a.source == s })
}
