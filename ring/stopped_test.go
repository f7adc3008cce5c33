package ring

import (
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/frame"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/stretchr/testify/require"
)

// stopLast makes the last node of a line take no frames, as if its process was stopped,
// until goOn is called.
func stopLast(f *fabric) (goOn func()) {
	in := f.nodes[len(f.nodes)-1].router.sides[Left].Load().in[0]
	in.mu.Lock()
	return in.mu.Unlock
}

// A node that takes no frames holds up those for it, and not those that others send over
// the same links to nodes before it. What was dropped comes again when it goes on.
func TestAStoppedNodeDoesNotHoldUpThoseBeforeIt(t *testing.T) {
	leak.Check(t)
	o := small(4)
	o.Topology = Line
	f := newFabric(t, o)
	a, b := f.tunnels(t, 1, 4)
	defer a.Close()
	defer b.Close()
	c, d := f.tunnels(t, 1, 3)
	defer c.Close()
	defer d.Close()
	c.settle()
	goOn := stopLast(f)
	out := a.Outbound()
	const last = 100
	for i := range uint64(last + 1) {
		out.Write(64, make([]byte, 400))
		out.Publish64(0, i)
	}
	for _, n := range f.nodes[1:3] {
		in := n.router.sides[Left].Load().in[0]
		require.Eventually(t, in.blocked.Load, 60*time.Second, time.Millisecond)
	}
	ends(t, "Order", c.settle)
	require.True(t, c.LinkUp())
	require.True(t, a.LinkUp())
	goOn()
	a.settle()
	require.EqualValues(t, last, ntb.Load64(b.Inbound(), 0))
}

// Nor does it hold up what a member sends over other links of its owner.
func TestAStoppedNodeDoesNotHoldUpAMember(t *testing.T) {
	leak.Check(t)
	o := small(3)
	o.Topology = Line
	f := newFabric(t, o)
	m := f.member(t, 2, 5)
	for _, host := range []int{1, 3} {
		known(t, f.nodes[host-1], m.ID())
		known(t, m, link.MakeID(host, 1))
	}
	var near [2]*tunnelEnd
	for i, host := range []int{1, 3} {
		x, y := pairUp(t, m, f.nodes[host-1])
		defer x.Close()
		defer y.Close()
		near[i] = x
	}
	near[0].settle()
	near[1].settle()
	defer stopLast(f)()
	out := near[1].Outbound()
	for i := range uint64(100) {
		out.Write(64, make([]byte, 400))
		out.Publish64(0, i)
	}
	down := (*f.nodes[1].router.members.Load())[m.ID()].in[0]
	require.Eventually(t, down.blocked.Load, 60*time.Second, time.Millisecond)
	ends(t, "Order", near[0].settle)
}

// A lane whose neighbour took nothing for long drops frames of members until it gives
// credit. From then on they wait for their turn like others, also behind another source.
func TestAMembersFrameIsKeptFromWhenCreditHasCome(t *testing.T) {
	leak.Check(t)
	o := small(3)
	o.Topology = Line
	m := newMiddle(t, o, 0)
	defer m.close()
	own := &greedy{f: frame.Header{Kind: frame.Ack, Src: m.n.id, Dst: link.MakeID(3, 1), Hops: 3}}
	m.out.Want(own) // until the lane is full; it waits from then on
	m.out.stall.stopped = true
	f := m.f
	require.Equal(t, headStopped, m.out.forward(&f, nil, m.in, true))
	m.to.Publish32(laneCredit, uint32(m.out.hop))
	require.Equal(t, headWaits, m.out.forward(&f, nil, m.in, true))
	require.True(t, m.out.turns.waiting(waiter{lane: m.in}))
}
