package arq

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// seeds returns how many seeds the environment asks for.
func seeds(t *testing.T) uint64 {
	n := 2000
	if testing.Short() {
		n = 200
	}
	if s := os.Getenv("NTBNET_SEEDS"); s != "" {
		var err error
		n, err = strconv.Atoi(s)
		require.NoError(t, err)
	}
	return uint64(n)
}

// run makes a world in which one number fixes every choice, and lets it end.
func run(fl fault, seed uint64) *world {
	rng := rand.New(rand.NewPCG(seed, 0))
	start := uint32(rng.IntN(40) - 20) // the numbers may wrap
	size := 1 + rng.IntN(8)
	w := newWorld(fl, start, size, Config{
		Buf: make([]byte, size*(4+rng.IntN(8))), Frames: 16 << rng.IntN(2), AckAt: 1 + rng.IntN(40),
	})
	w.trace = seed + 1
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
	var stored, whole int
	for seed := range seeds(t) {
		w := run(noFault, seed)
		require.Empty(t, w.wrong, "seed %d", seed)
		require.Equal(t, w.trace, run(noFault, seed).trace, "seed %d: two runs differ", seed)
		for i, s := range w.sides {
			stored += len(s.stored)
			if len(s.stored) > 20 && len(w.sides[1-i].got) == len(s.stored) {
				whole++
			}
		}
	}
	require.Positive(t, whole)
	t.Logf("%d bytes stored, %d streams of more than 20 bytes arrived as a whole", stored, whole)
}

// Each planted fault is found, by seeds and by the small cases.
func TestSeedsFindPlantedFaults(t *testing.T) {
	for _, fl := range faults {
		t.Run(string(fl), func(t *testing.T) {
			t.Parallel()
			seed := uint64(0)
			for ; run(fl, seed).wrong == ""; seed++ {
				require.Less(t, seed, uint64(1000), "not found")
			}
			require.Equal(t, run(fl, seed).wrong, run(fl, seed).wrong)
			t.Logf("seed %d: %s", seed, run(fl, seed).wrong)
			found := ""
			for _, c := range smallCases {
				if found, _ = explore(fl, c.budget); found != "" {
					break
				}
			}
			require.NotEmpty(t, found, "the small cases do not find it")
			t.Log(found)
		})
	}
}
