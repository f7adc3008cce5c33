package wait

import "time"

// guess predicts whether a wait should spin, from how the last ones ended.
type guess struct {
	elsewhere bool // constant: another machine ends the waits

	fails int // spins in a row that ended without data, at most maxFails
	skip  int // waits that will park at once
	late  int // late hits in a row
}

// A few unsuccessful spins mean little: the peer was parked, and waking it takes
// longer than a spin lasts. If we parked more often than the peer because of that,
// it would find us parked in turn, and both would stay so. Many in a row mean that
// waits are long, or that the peer needs the processor on which we spin.
const (
	fewMisses = 4
	maxFails  = fewMisses + 5
)

// spins reports whether the next wait should spin.
func (g *guess) spins() bool {
	if g.skip > 0 {
		g.skip--
		return false
	}
	return true
}

// Where being woken takes longer than a spin, two sides that both park would never find each
// other spinning. So where another machine ends the waits, each spin after a miss is longer than
// usual. A peer there is woken by an interrupt, perhaps of a virtual machine that has to be
// scheduled, which takes some hundreds of µs.
const (
	elsewhereTimes = 20
	// mostLate is enough late hits for the peer's next spin. After as many without one, waits
	// park lateSkip times.
	mostLate = 128
	lateSkip = 1023
)

// budget returns how long the spin that spins allowed may last.
func (g *guess) budget(spin time.Duration) time.Duration {
	if g.elsewhere && g.fails > 0 {
		return elsewhereTimes * spin
	}
	return spin
}

// hit is called after a spin that ended by data. It was late if it took longer than a usual one
// lasts, because the peer parks. Where that is of another machine, the next spins are long too, so
// that one of the peer's finds this side spinning.
func (g *guess) hit(late bool) {
	switch {
	case !late || !g.elsewhere:
		g.fails, g.skip, g.late = 0, 0, 0
	case g.late == mostLate:
		g.late, g.skip = 0, lateSkip
	default:
		g.late++
		g.skip = 0
	}
}

// miss makes the next wait park at once, and after many misses in a row more of
// them, up to 63.
func (g *guess) miss() {
	g.fails = min(g.fails+1, maxFails)
	g.skip = 2<<max(0, g.fails-fewMisses) - 1
}
