package ntbfixed

import "time"

// Times between two looks of a side that takes no interrupts. firstLook follows a look that found something, and what this side
// announced. It is shorter than the waits of connections poll. Else one look that is too early has both sides of a small window
// sleep: see docs/hardware.md. Row: Windows of package sdp over a file. idleLook bounds how late the first byte after a silence
// comes, which is else a 64th of that.
const (
	firstLook = 20 * time.Microsecond
	idleLook  = 10 * time.Millisecond
)

// pace says when a side that takes no interrupts looks again.
type pace struct {
	waited time.Duration // since a look found something
}

// next returns the time until the next look, a part of the time since a look found something. soon says that the last one did, or that
// something is about to come.
func (p *pace) next(soon bool) time.Duration {
	if soon {
		p.waited = 0
	}
	d := min(max(firstLook, p.waited/64), idleLook)
	p.waited += d
	return d
}
