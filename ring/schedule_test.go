package ring

import (
	"math/rand/v2"
	"testing"

	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/stretchr/testify/require"
)

// schedule runs the lanes of a ring without their workers, in an order that the
// seed chooses: every node sends to every other. It reports how many frames were
// put in and how many arrived when nothing moved any more.
func schedule(t *testing.T, seed uint64, noBubble bool) (sent, arrived uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	nodes := []int{3, 5, 8}[seed%3]
	o := Options{
		Nodes: nodes, Slots: 2 + rng.IntN(2), FrameBytes: 256, Window: MinWindow, Retention: 4096, noBubble: noBubble,
	}
	var all []*Node
	for host := 1; host <= nodes; host++ {
		n := NewNode(MakeID(host, 1))
		require.NoError(t, n.Join(o))
		all = append(all, n)
	}
	var links []*Link
	for i := range all {
		a, b := ntbmem.Pair(o.LinkWindow(0))
		right, err := newLink(all[i].router, a, Right)
		require.NoError(t, err)
		left, err := newLink(all[(i+1)%nodes].router, b, Left)
		require.NoError(t, err)
		all[i].router.sides[Right].Store(right)
		all[(i+1)%nodes].router.sides[Left].Store(left)
		links = append(links, right, left)
	}
	// A frame for a tunnel that is not there is dropped and counted.
	count := func() (n uint64) {
		for _, node := range all {
			n += node.router.drops[dropUnknownTunnel].Load()
		}
		return n
	}
	send := func(l *Link) {
		to := 1 + rng.IntN(nodes)
		if to == l.router.host {
			return
		}
		f := frame{kind: frameAck, src: l.router.node.id, dst: MakeID(to, 1), hops: uint16(nodes)}
		if l.out[0].own(&f, nil, discard{}, false) == putDone {
			sent++
		}
	}
	for range 300 {
		l := links[rng.IntN(len(links))]
		switch rng.IntN(4) {
		case 0:
			l.in[0].drain()
		case 1:
			l.out[0].poll()
		default:
			send(l)
		}
	}
	taken := func() (n uint64) {
		for _, l := range links {
			n += uint64(l.in[0].next.Load())
		}
		return n
	}
	for last := uint64(0); last != taken(); {
		last = taken()
		for _, i := range rng.Perm(len(links)) {
			links[i].in[0].drain()
			links[i].out[0].poll()
		}
	}
	for _, l := range links {
		l.dev.Close()
	}
	return sent, count()
}

func TestNoScheduleStopsARing(t *testing.T) {
	seeds := uint64(3000)
	if testing.Short() {
		seeds = 300
	}
	var frames uint64
	for seed := range seeds {
		sent, arrived := schedule(t, seed, false)
		require.Equal(t, sent, arrived, "seed %d", seed)
		frames += sent
	}
	require.Greater(t, frames, 20*seeds)
}

func TestSomeSchedulesStopARingWithoutTheBubbleRule(t *testing.T) {
	stopped := 0
	for seed := range uint64(300) {
		if sent, arrived := schedule(t, seed, true); arrived < sent {
			stopped++
		}
	}
	require.Positive(t, stopped)
	t.Logf("%d of 300 schedules stop", stopped)
}
