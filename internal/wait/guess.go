package wait

import "time"

// guess predicts whether a wait should spin, from how the last ones ended.
type guess struct {
	fails int // spins in a row that ended without data, at most maxFails
	skip  int // waits that will park at once
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

// budget returns how long the spin that spins allowed may last. The rare one after
// many misses lasts longer. Where being woken takes longer than a spin, two sides
// that both park would never find each other spinning.
func (g *guess) budget(spin time.Duration) time.Duration {
	if g.fails == maxFails {
		return 4 * spin
	}
	return spin
}

func (g *guess) hit() { g.fails, g.skip = 0, 0 }

// miss makes the next wait park at once, and after many misses in a row more of
// them, up to 63.
func (g *guess) miss() {
	g.fails = min(g.fails+1, maxFails)
	g.skip = 2<<max(0, g.fails-fewMisses) - 1
}
