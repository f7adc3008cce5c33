package ntbfixed

import "time"

// Times between two looks of a side that takes no interrupts.
const (
	// firstLook follows a look that found something, and what this side announced. It is shorter than the
	// waits of connections poll. Else one look that is too early has both sides of a small window sleep: see docs/hardware.md.
	firstLook = 20 * time.Microsecond
	// busyLook is the longest while data comes. Each look that finds nothing doubles the time
	// up to it.
	busyLook = time.Millisecond
	// idleLook is the time after idleAfter looks in a row, about a second, found nothing.
	idleLook  = 10 * time.Millisecond
	idleAfter = 1000
)

// Pace says when a side that takes no interrupts looks again.
type Pace struct {
	empty int // looks in a row that found nothing, up to idleAfter
}

// Next returns the time until the next look. soon says that the last one found something, or
// that something is about to come.
func (p *Pace) Next(soon bool) time.Duration {
	if soon {
		p.empty = 0
		return firstLook
	}
	p.empty = min(p.empty+1, idleAfter)
	switch {
	case p.empty == idleAfter:
		return idleLook
	case p.empty < 6:
		return min(firstLook<<p.empty, busyLook)
	}
	return busyLook
}
