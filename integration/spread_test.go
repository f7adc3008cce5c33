//go:build linux

package integration

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Nodes start in any order, at any time within a second, or within ten with
// NTBNET_LONG. Half-way, one that has started is killed, or ends, and starts again.
func TestARingComesUpWhenTheStartIsSpread(t *testing.T) {
	sizes, spread := []int{5}, time.Second
	if longRun() {
		sizes, spread = []int{5, 16, 5, 16}, 10*time.Second
	}
	for i, n := range sizes {
		t.Run(fmt.Sprintf("%d nodes, %d", n, i), func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			rnd := rand.New(rand.NewPCG(seed, 5))
			r := newRing(t, "ring", n)
			order := rnd.Perm(n)
			var times []time.Duration
			for range n {
				times = append(times, time.Duration(rnd.Int64N(int64(spread))))
			}
			slices.Sort(times)
			begun := time.Now()
			for k, i := range order {
				time.Sleep(times[k] - time.Since(begun))
				r.begin(i + 1)
				if k != n/2 {
					continue
				}
				again := order[rnd.IntN(k)] + 1
				r.ready(again)
				if rnd.IntN(2) == 0 {
					r.nodes[again].kill()
				} else {
					r.nodes[again].end()
				}
				time.Sleep(time.Duration(rnd.Int64N(int64(spread / 10))))
				r.begin(again)
				t.Logf("node %d of %v has started again", again, order)
			}
			for node := 1; node <= n; node++ {
				r.ready(node)
			}
			r.all(1000)
			r.linked()
			for _, v := range r.look().Views {
				require.Zero(t, v.Refused, "node %d has refused: %s", v.Node, v.LastRefusal)
			}
			r.end()
		})
	}
}
