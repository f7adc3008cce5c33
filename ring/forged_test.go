package ring

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/ntbnet/ntbnet/internal/frame"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/stretchr/testify/require"
)

// openAs returns an open frame of node src for node 1.1 of a fabric with windows of 1
// MiB.
func openAs(src link.ID, epoch uint32) *frame.Header {
	return &frame.Header{Kind: frame.Open, Src: src, Dst: link.MakeID(1, 1), From: 7, Epoch: epoch, Arg: 1 << 10, Ask: 16}
}

// admit has a frame that asks for a tunnel come over a link. If there is one then, it has no
// peer.
func admit(r *router, over linkKey, f *frame.Header) {
	if r.admit(over, f) != nil {
		r.node.wg.Done()
	}
}

// endAll ends a node's tunnels that have no peer.
func endAll(r *router) {
	for _, t := range r.tunnels.all() {
		t.Drop()
		t.Close()
	}
}

// The id in a frame is what its sender wrote there. A node makes no tunnels for processes
// that no link state names. For those of one host it makes no more than it has memory for.
func TestANodeMakesNoTunnelsForProcessesThatAreNotThere(t *testing.T) {
	leak.Check(t)
	n := joined(t, link.MakeID(1, 1), small(4))
	defer n.Close()
	r := n.router
	const tries = 3000
	defer endAll(r)
	r.mu.Lock()
	r.linkStates[2] = &linkState{id: link.MakeID(2, 1), number: 1, members: []link.ID{link.MakeID(2, 5), link.MakeID(2, 6)}}
	r.mu.Unlock()
	for process := 1; process <= tries; process++ {
		admit(r, linkKey{}, openAs(link.MakeID(2, process), 9))
		admit(r, linkKey{}, openAs(link.MakeID(3, process), 9)) // of which no link state came
	}
	var made []link.ID
	for _, t := range r.tunnels.all() {
		made = append(made, t.Remote)
	}
	require.Len(t, made, 3)
	require.ElementsMatch(t, []link.ID{link.MakeID(2, 1), link.MakeID(2, 5), link.MakeID(2, 6)}, made)
	require.EqualValues(t, 2*tries-3, r.drops[frame.DropStranger].Load())
}

func TestTheTunnelsThatAHostAsksForAreNotTooMany(t *testing.T) {
	leak.Check(t)
	o := small(4)
	o.Window, o.Retention = link.MinWindow, 2<<10
	n := joined(t, link.MakeID(1, 1), o)
	defer n.Close()
	r := n.router
	const processes = 2 * maxHostTunnels
	defer endAll(r)
	forged := &linkState{id: link.MakeID(2, 1), number: 1}
	for i := range processes {
		forged.members = append(forged.members, link.MakeID(2, 2+i))
	}
	r.mu.Lock()
	r.linkStates[2], r.linkStates[3] = forged, &linkState{id: link.MakeID(3, 1), number: 1}
	r.mu.Unlock()
	for i, id := range forged.members {
		admit(r, linkKey{}, openAs(id, uint32(1+i)))
	}
	require.Len(t, r.tunnels.all(), maxHostTunnels)
	admit(r, linkKey{}, openAs(link.MakeID(3, 1), 1)) // another host's
	require.Len(t, r.tunnels.all(), maxHostTunnels+1)
}

// A neighbour can make link states of all hosts, and ask for tunnels in their names.
func TestTheTunnelsThatANeighbourAsksForAreNotTooMany(t *testing.T) {
	leak.Check(t)
	o := small(100)
	o.Window, o.Retention = link.MinWindow, 2<<10
	n := joined(t, link.MakeID(1, 1), o)
	defer n.Close()
	r := n.router
	const hosts, processes = 90, 30
	defer endAll(r)
	for host := 2; host < 2+hosts; host++ {
		forged := &linkState{id: link.MakeID(host, 1), number: 1}
		for process := range processes {
			forged.members = append(forged.members, link.MakeID(host, 1+process))
		}
		r.mu.Lock()
		r.linkStates[host] = forged
		r.mu.Unlock()
		for _, id := range forged.members {
			admit(r, linkKey{Left, 0}, openAs(id, 1))
		}
	}
	require.Len(t, r.tunnels.all(), maxLinkTunnels)
	admit(r, linkKey{Right, 0}, openAs(link.MakeID(91, processes), 1)) // by the other neighbour
	require.Len(t, r.tunnels.all(), maxLinkTunnels+1)
}

// A peer may go down as soon as it is up, before it is in the table. It must not stay there
// with its memory.
func TestAPeerThatHasEndedIsNotKept(t *testing.T) {
	leak.Check(t)
	o := small(2)
	o.Topology, o.Failover = Line, true
	f := newFabric(t, o)
	r := f.nodes[0].router
	p, err := f.nodes[0].Peer(within(t), link.MakeID(2, 1))
	require.NoError(t, err)
	r.mu.Lock()
	over := r.routed[p.ID()]
	r.mu.Unlock()
	require.NotNil(t, over)
	p.Fail(link.ErrClosed)
	<-p.Done()
	r.keep(p, over)
	r.mu.Lock()
	defer r.mu.Unlock()
	require.NotContains(t, r.routed, p.ID())
}

// staleOpen has the first node of a line take an open in the name of a process that knows nothing of
// it, and returns the tunnel that it makes.
func staleOpen(t *testing.T, r *router, from link.ID) *tunnelEnd {
	t.Helper()
	const epoch = 9
	r.open(linkKey{Right, 0}, openAs(from, epoch))
	stale := r.tunnels.byEpoch(from, epoch)
	require.NotNil(t, stale)
	require.Eventually(t, func() bool { return stale.kept() > 0 }, 60*time.Second, time.Millisecond)
	return stale
}

// An open that is late, or forged, is no reason to leave the peer that is there: its process answers that
// it has not asked, but perhaps not soon.
func TestAnOpenThatNobodyStandsByReplacesNoPeer(t *testing.T) {
	leak.Check(t)
	o := small(3)
	o.Topology = Line
	f := newFabric(t, o)
	id := link.MakeID(3, 1)
	p, err := f.nodes[0].Peer(within(t), id)
	require.NoError(t, err)
	goOn := stopLast(f)
	stale := staleOpen(t, f.nodes[0].router, id)
	now, err := f.nodes[0].Peer(within(t), id)
	goOn()
	require.NoError(t, err)
	require.True(t, p == now, "another peer takes its place")
	ends(t, "the tunnel of the open", func() { <-stale.Down() })
	now, err = f.nodes[0].Peer(within(t), id)
	require.NoError(t, err)
	require.True(t, p == now, "another peer takes its place")
}

// A process that never answers, though there is a route to it, keeps no memory here.
func TestAnAskedTunnelWithoutAnAnswerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := small(3)
		o.Topology, o.NoSpin = Line, true
		f := newPlainFabric(t, o)
		r := f.nodes[0].router
		r.mu.Lock()
		silent := link.MakeID(3, 5) // host 3 drops what comes for it
		r.linkStates[3].members = append(r.linkStates[3].members, silent)
		r.mu.Unlock()
		stale := staleOpen(t, r, silent)
		begin := time.Now()
		select {
		case <-stale.Down():
		case <-time.After(time.Hour):
			require.Fail(t, "it is there after an hour")
		}
		require.Less(t, time.Since(begin), 11*time.Second)
		time.Sleep(time.Minute)
		require.Empty(t, r.tunnels.all())
	})
}

// How far a frame may still go is what its sender wrote there.
func TestAFrameDoesNotGoRoundAndRound(t *testing.T) {
	leak.Check(t)
	o := small(4)
	f := newPlainFabric(t, o)
	f.agrees(t, 1, "at the beginning")
	in := f.nodes[2].router.sides[Left].Load().in[0]
	taken := func() uint64 {
		in.mu.Lock()
		defer in.mu.Unlock()
		return in.frames
	}
	before := taken()
	forge(t, f, frame.Header{Kind: frame.Ack, Hops: 60000, Src: link.MakeID(77, 1), Dst: link.MakeID(88, 1)}, nil)
	require.Eventually(t, func() bool {
		for _, n := range f.nodes {
			if n.router.drops[frame.DropHops].Load() > 0 {
				return true
			}
		}
		return false
	}, 60*time.Second, time.Millisecond)
	require.Less(t, taken()-before, uint64(100), "but for it there are only link states")
}
