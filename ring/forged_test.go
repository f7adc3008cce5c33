package ring

import (
	"testing"

	"github.com/ntbnet/ntbnet/internal/leak"
	"github.com/stretchr/testify/require"
)

// openAs is an open frame of node src for node 1.1 of a fabric with windows of 1 MiB.
func openAs(src ID, epoch uint32) *frame {
	return &frame{kind: frameOpen, src: src, dst: MakeID(1, 1), from: 7, epoch: epoch, arg: 1 << 10, ask: 16}
}

// endAll ends a node's tunnels, which no peer has.
func endAll(r *router) {
	for _, t := range r.tunnels.all() {
		t.mu.Lock()
		t.end()
		t.mu.Unlock()
		t.Close()
	}
}

// The id in a frame is what its sender wrote there. A node makes no tunnels for processes
// that no news name, and for those of one host not more than it has memory for.
func TestANodeMakesNoTunnelsForProcessesThatAreNotThere(t *testing.T) {
	leak.Check(t)
	n := NewNode(MakeID(1, 1))
	require.NoError(t, n.Join(small(4)))
	defer n.Close()
	r := n.router
	const tries = 3000
	r.hook = make(chan *tunnel, 2*tries)
	defer endAll(r)
	r.mu.Lock()
	r.news[2] = &news{id: MakeID(2, 1), number: 1, members: []ID{MakeID(2, 5), MakeID(2, 6)}}
	r.mu.Unlock()
	for process := 1; process <= tries; process++ {
		r.open(openAs(MakeID(2, process), 9))
		r.open(openAs(MakeID(3, process), 9)) // of which no news came
	}
	var made []ID
	for _, t := range r.tunnels.all() {
		made = append(made, t.remote)
	}
	require.Len(t, made, 3)
	require.ElementsMatch(t, []ID{MakeID(2, 1), MakeID(2, 5), MakeID(2, 6)}, made)
	require.EqualValues(t, 2*tries-3, r.drops[dropStranger].Load())
}

func TestTheTunnelsThatAHostAsksForAreNotTooMany(t *testing.T) {
	leak.Check(t)
	n := NewNode(MakeID(1, 1))
	o := small(4)
	o.Window, o.Retention = MinWindow, 2<<10
	require.NoError(t, n.Join(o))
	defer n.Close()
	r := n.router
	const processes = 2 * maxHostTunnels
	r.hook = make(chan *tunnel, processes)
	defer endAll(r)
	forged := &news{id: MakeID(2, 1), number: 1}
	for i := range processes {
		forged.members = append(forged.members, MakeID(2, 2+i))
	}
	r.mu.Lock()
	r.news[2], r.news[3] = forged, &news{id: MakeID(3, 1), number: 1}
	r.mu.Unlock()
	for i, id := range forged.members {
		r.open(openAs(id, uint32(1+i)))
	}
	require.Len(t, r.tunnels.all(), maxHostTunnels)
	r.open(openAs(MakeID(3, 1), 1)) // another host's
	require.Len(t, r.tunnels.all(), maxHostTunnels+1)
}
