package ring

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Tunnels between two hosts opposite each other in a ring use both routes, and both ends of a tunnel
// send over the same links.
func TestTunnelsUseBothOfTwoEqualRoutes(t *testing.T) {
	opposite := map[string]string{"left": "right", "right": "left"}
	for _, hosts := range []int{2, 4, 6} {
		f := newFabric(t, small(hosts))
		for low := 1; low <= hosts/2; low++ {
			for _, epoch := range []uint32{1<<31 - 1, 1 << 31} {
				pairUpBy(t, f.nodes[low-1], f.nodes[low+hosts/2-1], epoch)
			}
			there := map[uint32]string{}
			for _, a := range f.nodes[low-1].Tunnels() {
				there[a.Epoch] = a.Direction
			}
			used := map[string]int{}
			for _, b := range f.nodes[low+hosts/2-1].Tunnels() {
				require.Equal(t, opposite[there[b.Epoch]], b.Direction, "hosts %d and %d of %d", low, low+hosts/2, hosts)
				used[b.Direction]++
			}
			require.Len(t, used, 2)
		}
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
