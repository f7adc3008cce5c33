package ntbfixed

import (
	"math/rand/v2"
	"testing"

	"github.com/ntbnet/ntbnet/ntb"
	"github.com/stretchr/testify/require"
)

// watched returns what a process that comes to side 0 finds, when live sessions there beat once a
// tick.
func watched(m pages, live ...*page) finding {
	c := claim{far: m[1], dead: 5}
	found := c.first(nil)
	for range 10 {
		if found != unknown {
			break
		}
		for _, p := range live {
			p.pulse()
		}
		found = c.next()
	}
	return found
}

func TestAnEndIsFoundInUse(t *testing.T) {
	m := newPages()
	require.Equal(t, free, watched(m), "nobody was there")
	a := m.begin(0, 11)
	a.publish()
	require.Equal(t, inUse, watched(m, a), "it waits for the peer")
	b := m.begin(1, 22)
	bringUp(t, a, b)
	require.Equal(t, inUse, watched(m, a))
	require.Equal(t, free, watched(m), "it was killed")
	a.end()
	c := claim{far: m[1], dead: 5}
	require.Equal(t, free, c.first(nil), "it has ended in order: there is nothing to watch")
	next := m.begin(0, 12)
	next.publish()
	require.Equal(t, unknown, c.first(nil))
	c.begin(12)
	require.Equal(t, free, c.first(nil), "it was our own")
	require.True(t, c.holds())
	m.begin(0, 13).publish()
	require.False(t, c.holds())
	require.Equal(t, unknown, c.first(nil))
	for _, gone := range []uint64{0, ^uint64(0)} { // the peer is not set up, or the bridge is dead
		w := ntb.MappedWindow(m[1], ntb.Cacheable)
		for off := 0; off < PageSize; off += 8 {
			w.Publish64(off, gone)
		}
		require.Equal(t, free, watched(m))
		require.True(t, c.holds())
	}
}

// A heartbeat that stops for less than the limit is a process that was busy.
func TestAnEndIsWatchedForAsLongAsADeadPeer(t *testing.T) {
	m := newPages()
	a := m.begin(0, 11)
	a.publish()
	c := claim{far: m[1], dead: 5}
	require.Equal(t, unknown, c.first(nil))
	for range 4 {
		require.Equal(t, unknown, c.next())
	}
	b := c
	require.Equal(t, free, c.next())
	a.pulse()
	require.Equal(t, inUse, b.next())
}

// TestSeedsOfClaims has two processes come to one end at the same moment, whose steps are mixed.
// Not both believe that they have it alone when each has stored its words and looked.
func TestSeedsOfClaims(t *testing.T) {
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 9))
		m := newPages()
		var p [2]*page
		var c [2]claim
		var steps [2]int
		holds := [2]bool{true, true}
		for steps[0] < 4 || steps[1] < 4 {
			x := rng.IntN(2)
			switch steps[x] {
			case 0:
				c[x] = claim{far: m[1], dead: 5}
				if c[x].first(nil) != free {
					steps[x] = 3 // it watches, and the other one beats
					holds[x] = false
				}
			case 1:
				p[x] = m.begin(0, uint32(x)+11)
				c[x].begin(uint32(x) + 11)
				p[x].publish()
			case 2, 3:
				if holds[x] && !c[x].holds() {
					holds[x] = false
				}
				if holds[x] {
					p[x].publish() // as often as it takes
				}
			}
			steps[x]++
		}
		// What goes on looks again.
		for x := range p {
			holds[x] = holds[x] && c[x].holds()
		}
		require.False(t, holds[0] && holds[1], "seed %d", seed)
	}
}
