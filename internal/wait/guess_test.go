package wait

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// pingPong has two sides answer each other at once, n times, and returns how many of the last hundred answers
// were read at once. A side that parks reads its answer as late as waking takes. The first answer is late.
func pingPong(sides *[2]guess, n int, wake time.Duration) (quick int) {
	const spin, store = 50 * time.Microsecond, 100 * time.Nanosecond
	last := wake // how late the other side has read what this one has sent before it waits
	for i := range n {
		g := &sides[i%2]
		spins := g.spins()
		if last == store && spins && i >= n-100 {
			quick++
		}
		switch {
		case spins && last <= g.budget(spin):
			g.hit(last > spin)
			last = store
		case spins:
			g.miss()
			last = wake
		default:
			last = wake
		}
	}
	return quick
}

// Two sides that both park find each other spinning in the end, although being woken takes longer than a
// usual spin lasts.
func TestSidesOfTwoMachinesFindEachOther(t *testing.T) {
	for _, wake := range []time.Duration{10 * time.Microsecond, 100 * time.Microsecond, 300 * time.Microsecond, 900 * time.Microsecond} {
		for seed := range uint64(100) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			var sides [2]guess
			for i := range sides {
				sides[i] = guess{elsewhere: true, fails: maxFails, skip: rnd.IntN(64)}
			}
			require.Equal(t, 100, pingPong(&sides, 1000, wake), "wake %v, seed %d", wake, seed)
			require.Equal(t, 100, pingPong(&sides, 110, wake), "the first answer is late: wake %v, seed %d", wake, seed)
		}
	}
}

// A peer that always has to be woken is not waited for by long spins for ever.
func TestLateHitsEnd(t *testing.T) {
	g := guess{elsewhere: true, fails: maxFails}
	spins := 0
	for range 10_000 {
		if g.spins() {
			spins++
			g.hit(true)
		}
	}
	require.InDelta(t, 10_000*(mostLate+1)/(mostLate+lateSkip), spins, mostLate)
}
