package fabric

import "github.com/ntbnet/ntbnet/internal/status"

// state is that of a link, as this end of it sees it.
type state int

const (
	down   state = iota // there is no link
	absent              // and the other end does not run
	asking              // this end has asked for the link, and waits for the answer
	making              // both ends have agreed, and the link is brought up
	up
)

func (s state) String() string {
	return [...]string{status.Down, status.Absent, status.Making, status.Making, status.Up}[s]
}

// event is what changes the state of a link.
type event int

const (
	missed  event = iota // the other end does not run
	found                // the other end runs
	ask                  // this end begins to ask
	refused              // it gets no answer, or not the one that it wants
	agreed               // it gets that
	asked                // the other end asks
	failed               // what both have agreed on does not come up
	kept                 // likewise, but the link from before is up still
	made                 // it comes up
	ended                // the link goes down
)

// after returns the state that follows an event, and whether the event may happen now. If both ends ask, one of them is
// first: it goes on, and the other one's question is answered by "busy". Of a link that is up this end may not know yet
// that it is down when the other end asks again.
func (s state) after(e event, first bool) (next state, ok bool) {
	switch e {
	case missed:
		return absent, s == down || s == absent
	case found:
		return down, s == down || s == absent
	case ask:
		return asking, s == down || s == absent
	case refused:
		return down, s == asking
	case agreed:
		return making, s == asking
	case asked:
		return making, s != making && (s != asking || !first)
	case failed:
		return down, s == making
	case kept, made:
		return up, s == making
	default: // ended
		return down, s == up
	}
}
