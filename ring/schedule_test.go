package ring

import (
	"math/rand/v2"
	"testing"

	"github.com/ntbnet/ntbnet/internal/frame"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/testing/explore"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/stretchr/testify/require"
)

// schedule runs the lanes of a ring without their workers, in an order that the
// seed chooses. Every node sends to every other. It returns how many frames were
// put in, and how many had arrived when nothing moved any more. With members, each
// host has one, and only these send, to each other and to the owners.
func schedule(t *testing.T, seed uint64, noBubble, members bool) (sent, arrived uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	nodes := []int{3, 5, 8}[seed%3]
	o := Options{
		Hosts: nodes, Slots: 2 + rng.IntN(2), FrameBytes: 256, Window: link.MinWindow, Retention: 4096,
	}
	var all []*Node
	for host := 1; host <= nodes; host++ {
		n, err := Join(link.NewNode(link.MakeID(host, 1)), o)
		require.NoError(t, err)
		all = append(all, n)
	}
	var links []*Link
	for i := range all {
		a, b := ntbmem.Pair(o.LinkWindow(0))
		right, err := newLink(all[i].router, a, Right)
		require.NoError(t, err)
		left, err := newLink(all[(i+1)%nodes].router, b, Left)
		require.NoError(t, err)
		for _, l := range []*Link{right, left} {
			l.router.sides[l.direction].Store(l)
			l.router.links[l.key()] = l
		}
		links = append(links, right, left)
	}
	processes := 1
	if members {
		processes = 2
		for _, owner := range all[:nodes] {
			member := o
			member.Member = true
			n, err := Join(link.NewNode(link.MakeID(owner.id.Host(), 2)), member)
			require.NoError(t, err)
			all = append(all, n)
			a, b := ntbmem.Pair(o.LinkWindow(0))
			up, err := newLink(n.router, a, Up)
			require.NoError(t, err)
			down, err := newLink(owner.router, b, Down)
			require.NoError(t, err)
			up.id, down.id = owner.id, n.id
			owner.router.members.Store(&map[link.ID]*Link{n.id: down})
			links = append(links, up, down)
		}
	}
	for _, l := range links {
		l.out[0].stall.watching = true // the clock has no part in it
		if noBubble {
			l.out[0].withoutBubbleRule()
		}
	}
	// A frame for a tunnel that does not exist is dropped and counted.
	count := func() (n uint64) {
		for _, node := range all {
			n += node.router.drops[frame.DropUnknownTunnel].Load()
		}
		return n
	}
	send := func(l *Link) {
		to := 1 + rng.IntN(nodes)
		if to == l.router.host || members && l.direction != Up {
			return
		}
		f := frame.Header{Kind: frame.Ack, Src: l.router.node.id, Dst: link.MakeID(to, 1+rng.IntN(processes)), Epoch: rng.Uint32(), Hops: l.router.opts.mostHops()}
		if l.out[0].inject(&f, nil) {
			sent++
		}
	}
	steps := 300
	if members {
		steps = 1000 // many of them do nothing
	}
	for range steps {
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

// withoutBubbleRule has the lane take a frame into the last slot that is free, from all, and drop none.
func (o *outLane) withoutBubbleRule() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.turns.needs, o.stall.watching = 1, true
}

func TestNoScheduleStopsARing(t *testing.T) {
	first, end := explore.Range(t, 1000)
	for _, members := range []bool{false, true} {
		var frames uint64
		for seed := first; seed < end; seed++ {
			sent, arrived := schedule(t, seed, false, members)
			require.Equal(t, sent, arrived, "seed %d, members: %t", seed, members)
			frames += sent
		}
		require.Greater(t, frames, 20*(end-first))
	}
}

func TestSomeSchedulesStopARingWithoutTheBubbleRule(t *testing.T) {
	for _, members := range []bool{false, true} {
		stopped := 0
		for seed := range uint64(300) {
			if sent, arrived := schedule(t, seed, true, members); arrived < sent {
				stopped++
			}
		}
		require.Positive(t, stopped, "members: %t", members)
		t.Logf("%d of 300 schedules stop, members: %t", stopped, members)
	}
}
