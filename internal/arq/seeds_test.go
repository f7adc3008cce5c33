package arq

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ntbnet/ntbnet/internal/testing/explore"
)

// run makes a world in which one number fixes every choice, and lets it end.
func run(fl fault, seed uint64) *world {
	rng := rand.New(rand.NewPCG(seed, 0))
	start := uint32(rng.IntN(40) - 20) // the numbers may wrap
	size := 1 + rng.IntN(8)
	w := newWorld(fl, start, size, Config{
		Buf: make([]byte, size*(4+rng.IntN(8))), Frames: 16 << rng.IntN(2), AckAt: 1 + rng.IntN(40),
	})
	w.trace = explore.Begin(seed)
	// How often each thing happens differs from world to world.
	var weights [7]int
	for i := range weights {
		weights[i] = rng.IntN(10)
	}
	weights[0] += 4 // send
	weights[1] += 4 // deliver
	leaves := rng.IntN(3) > 0
	silent := rng.IntN(4) // the side with that number stores nothing
	lane := 1 + rng.IntN(12)
	for range 50 + rng.IntN(300) {
		n := rng.IntN(weights[0] + weights[1] + weights[2] + weights[3] + weights[4] + weights[5] + weights[6])
		what := 0
		for ; n >= weights[what]; what++ {
			n -= weights[what]
		}
		i := rng.IntN(2)
		switch {
		case what == 0 && len(w.flight) < lane:
			w.send(i)
		case what == 1 && len(w.flight) > 0:
			w.deliver(rng.IntN(min(len(w.flight), 1+rng.IntN(4))), rng.IntN(10) == 0)
		case (what == 2 || what == 4) && i == silent:
		case what == 2:
			w.store(i, 1+rng.IntN(size))
		case what == 3 && len(w.flight) > 0 && rng.IntN(2) == 0:
			w.lose(rng.IntN(len(w.flight)))
		case what == 4:
			w.ask(i)
		case what == 5:
			w.pass()
		case what == 6 && leaves && rng.IntN(50) == 0:
			w.leave(i, rng.IntN(2) == 0)
		case what == 6 && rng.IntN(4) == 0:
			w.restart(i)
		}
		if w.wrong != "" {
			return w
		}
	}
	w.settle()
	return w
}

// Whatever is lost, repeated and overtaken, what is stored arrives in order, once. Each seed
// determines all of it: two runs have the same trace.
//
//	NTBNET_SEEDS=1000000 go test ./internal/arq -run Seeds
func TestSeedsDeliverInOrderOnce(t *testing.T) {
	stored, whole := 0, 0 // each run counts twice
	explore.Seeds(t, 2000, func(seed uint64) (string, explore.Trace) {
		w := run(noFault, seed)
		for i, s := range w.sides {
			stored += len(s.stored)
			if len(s.stored) > 20 && len(w.sides[1-i].got) == len(s.stored) {
				whole++
			}
		}
		return w.wrong, w.trace
	})
	require.Positive(t, stored)
	t.Logf("%d bytes stored, %d streams of more than 20 bytes arrived as a whole", stored/2, whole/2)
}

// Each planted fault is found, by seeds and by the small cases.
func TestSeedsFindPlantedFaults(t *testing.T) {
	find := func(fl fault, seed uint64) (string, explore.Trace) { w := run(fl, seed); return w.wrong, w.trace }
	explore.Planted(t, faults, find, func(fl fault) (found string) {
		for _, c := range smallCases {
			if found, _ = small(fl, c.budget); found != "" {
				break
			}
		}
		return found
	})
}
