package arq

import "fmt"

// State is the state of an End.
type State uint8

const (
	Opening   State = iota // the other end has not answered
	Up                     // what is stored is sent
	Draining               // disabled here: what is kept is sent, and the end of it
	Lingering              // closed here: the same, for a limited time
	Ended                  // nothing is sent any more but acknowledgements
	Closed                 // ended, and closed here
)

// String returns the state's name in lower case.
func (s State) String() string {
	names := [...]string{"opening", "up", "draining", "lingering", "ended", "closed"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// MayBecome reports whether an End in state s may change to state to. There are no other
// changes.
func (s State) MayBecome(to State) bool {
	switch s {
	case Opening:
		return to == Up || to == Ended
	case Up:
		return to == Draining || to == Lingering || to == Ended
	case Draining:
		return to == Lingering || to == Ended
	case Lingering, Ended:
		return to == Closed
	}
	return false
}

// Leaving reports whether the End sends what it keeps, and then close.
func (s State) Leaving() bool { return s == Draining || s == Lingering }

// Over reports whether nothing is sent any more but acknowledgements.
func (s State) Over() bool { return s == Ended || s == Closed }
