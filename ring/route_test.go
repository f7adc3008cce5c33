package ring

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Two hosts opposite each other in a ring send to each other over the same links, and not all such
// pairs go round the same way.
func TestOppositeHostsSendOverTheSameLinks(t *testing.T) {
	for _, hosts := range []int{2, 4, 6} {
		f := newFabric(t, small(hosts))
		f.waitLinkStates(t)
		to := func(from, to int) string {
			for _, r := range f.nodes[from-1].Hosts() {
				if r.Host == to {
					require.Equal(t, hosts/2, r.Hops)
					return r.Direction
				}
			}
			require.FailNow(t, "no route", "from %d to %d of %d", from, to, hosts)
			return ""
		}
		opposite := map[string]string{"left": "right", "right": "left"}
		used := map[string]bool{}
		for low := 1; low <= hosts/2; low++ {
			there, back := to(low, low+hosts/2), to(low+hosts/2, low)
			require.Equal(t, opposite[there], back, "hosts %d and %d of %d", low, low+hosts/2, hosts)
			used[there] = true
		}
		require.Len(t, used, min(hosts/2, 2))
	}
}

// Both ends of a tunnel send over the same lane, and tunnels use all lanes.
func TestBothEndsOfATunnelUseTheSameLane(t *testing.T) {
	o := small(3)
	o.Lanes = 2
	f := newFabric(t, o)
	used := map[int]bool{}
	for range 40 { // all in one lane: once in 2^39 runs
		f.tunnels(t, 1, 3)
	}
	lanes := map[uint32]int{}
	for _, a := range f.nodes[0].Tunnels() {
		lanes[a.Epoch] = a.Lane
		used[a.Lane] = true
	}
	require.Len(t, lanes, 40)
	for _, b := range f.nodes[2].Tunnels() {
		lane, ok := lanes[b.Epoch]
		require.True(t, ok)
		require.Equal(t, lane, b.Lane)
	}
	require.Len(t, used, o.Lanes)
}
