package ring

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/internal/testing/ntbfault"
	"github.com/stretchr/testify/require"
)

// Bridges misbehave, each in its way, while cables are pulled and put back. What is
// under way there vanishes. Streams of both directions, one over two hops and one
// between neighbours, lose nothing. With NTBNET_LONG in the environment there are
// more seeds, and more cables are pulled.
func TestStreamsOverBridgesThatArePulled(t *testing.T) {
	leak.Check(t)
	seeds, cuts := uint64(1), 3
	if os.Getenv("NTBNET_LONG") != "" {
		seeds, cuts = 10, 8
	}
	for name, o := range map[string]ntbfault.Options{
		"nothing else":        {},
		"stores late":         {StoreDelayMax: 200 * time.Microsecond},
		"little room":         {StoreDelayMax: 50 * time.Microsecond, QueueBytes: 1024},
		"doorbells late":      {DoorbellDelayMax: time.Millisecond},
		"doorbells lost":      {DropDoorbell: 0.01},
		"doorbells repeated":  {RepeatDoorbell: 0.5},
		"windows set up late": {InvalidMax: 20 * time.Millisecond},
		"all":                 {StoreDelayMax: 50 * time.Microsecond, DoorbellDelayMax: 200 * time.Microsecond, DropDoorbell: 0.002, RepeatDoorbell: 0.1, InvalidMax: 10 * time.Millisecond},
	} {
		for seed := range seeds {
			t.Run(fmt.Sprintf("%s, seed %d", name, seed), func(t *testing.T) {
				o.Seed = 1000 * seed
				pullCables(t, o, cuts)
			})
		}
	}
}

func pullCables(t *testing.T, faults ntbfault.Options, cuts int) {
	f := newFaultyFabric(t, small(4), &faults)
	rng := rand.New(rand.NewPCG(faults.Seed, 8))
	var streams []*stream
	for _, ends := range [][2]int{{1, 3}, {3, 1}, {1, 2}, {4, 1}} {
		a, b := f.tunnels(t, ends[0], ends[1])
		defer a.Close()
		defer b.Close()
		streams = append(streams, &stream{from: a, to: b, rounds: 1 << 40, size: streamSlot})
	}
	var wg sync.WaitGroup
	for _, s := range streams {
		s.start(&wg)
	}
	// Each stream moves on between two cuts, and while a cable is away.
	moved := func() {
		for _, s := range streams {
			from, end := s.done.Load(), time.Now().Add(20*time.Second)
			for s.done.Load() < from+3 && s.wrong.Load() == nil && s.from.LinkUp() && time.Now().Before(end) {
				time.Sleep(100 * time.Microsecond)
			}
		}
	}
	for range cuts {
		moved()
		i := rng.IntN(4)
		f.pull(i)
		switch rng.IntN(3) {
		case 0:
			moved()
		case 1: // both directions are cut for a moment
			j := (i + 1 + rng.IntN(3)) % 4
			f.pull(j)
			f.connect(j)
		}
		f.connect(i)
	}
	moved()
	for _, s := range streams {
		s.stop.Store(true)
	}
	wg.Wait()
	for i, s := range streams {
		if w := s.wrong.Load(); w != nil {
			t.Errorf("stream %d: %s", i, *w)
		}
		require.True(t, s.from.LinkUp() && s.to.LinkUp(), "stream %d", i)
		require.GreaterOrEqual(t, s.done.Load(), uint64(3*cuts), "stream %d stands still", i)
		once(t, s.from.(*tunnelEnd), s.to.(*tunnelEnd))
	}
}
