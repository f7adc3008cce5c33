package ring

import (
	"testing"

	"github.com/ntbnet/ntbnet/internal/frame"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/stretchr/testify/require"
)

// ownOf returns a source of a relay that always has a frame without a body.
func ownOf(m *relay) *greedy {
	return &greedy{f: frame.Header{Kind: frame.Ack, Src: m.n.id, Dst: link.MakeID(3, 1), Hops: 3}}
}

// takenAll has the right neighbour take all frames, and the lane look once.
func (m *relay) takenAll() {
	m.out.mu.Lock()
	m.to.Publish32(laneCredit, uint32(m.out.hop))
	m.out.mu.Unlock()
	m.out.pollSome()
}

// waiting reports whether w waits.
func (o *outLane) waiting(w waiter) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.turns.waiting(w)
}

// A head of a member that waits for one link goes by another when a link state comes, or is dropped.
// Its lane waits for the first link no more, and holds up nothing there.
func TestALaneWhoseHeadHasLeftHoldsUpNobody(t *testing.T) {
	o := small(4)
	o.Topology = Line
	m := newOwner(t, o, 0)
	defer m.close()
	m.out.stall.watching = true // the clock has no part in it
	m.f.Dst = link.MakeID(4, 1)
	m.f.Encode(&m.header)
	m.out.Want(ownOf(m)) // the lane is full
	m.put()
	m.in.drain()
	w := waiter{lane: m.in}
	require.True(t, m.out.waiting(w))
	r := m.n.router
	r.mu.Lock()
	r.linkStates[3] = &linkState{id: link.MakeID(3, 1), sides: [2]sideState{Left: stateUp, Right: stateDown}}
	r.mu.Unlock()
	r.version.Add(1)
	m.in.drain()
	require.EqualValues(t, 1, r.drops[frame.DropNoLink].Load(), "there is no route any more")
	for range 10 {
		sent := m.sent()
		m.takenAll()
		require.Greater(t, m.sent(), sent)
	}
	require.False(t, m.out.waiting(w))
}

// A neighbour may do anything with a frame that waits.
func TestALaneWhoseHeadIsChangedHoldsUpNobody(t *testing.T) {
	for name, change := range map[string]func(m *relay){
		"for this node": func(m *relay) {
			m.f.Dst = m.n.id
			m.f.Encode(&m.header)
			m.from.Write(lanesAt+m.out.slotBytes()+8, m.header[8:])
		},
		"bad":        func(m *relay) { m.from.Publish64(lanesAt+m.out.slotBytes(), 2|0xff<<32) },
		"taken back": func(m *relay) { m.from.Publish64(lanesAt+m.out.slotBytes(), 0) },
	} {
		t.Run(name, func(t *testing.T) {
			o := small(3)
			o.Topology = Line
			m := newMiddle(t, o, 0)
			defer m.close()
			m.out.stall.watching = true
			m.f.Kind = frame.Ack
			m.out.Want(ownOf(m))
			m.put() // takes the last slot
			m.put()
			m.in.drain()
			w := waiter{lane: m.in}
			require.True(t, m.out.waiting(w))
			change(m)
			m.in.drain()
			for range 10 {
				sent := m.sent()
				m.takenAll()
				require.Greater(t, m.sent(), sent)
			}
			require.False(t, m.out.waiting(w))
		})
	}
}

// Nothing waits in a lane whose link has ended, since nobody comes.
func TestALaneThatHasEndedKeepsNoSource(t *testing.T) {
	o := small(3)
	o.Topology = Line
	m := newMiddle(t, o, 0)
	defer m.close()
	m.out.close()
	m.out.Want(ownOf(m))
	require.Empty(t, m.out.turns.own)
}

// A tunnel that is closed leaves the lane for which it waited, which may have no room for
// long. A node that asks again and again would keep the memory of all its tunnels.
func TestATunnelThatIsClosedWaitsNoMore(t *testing.T) {
	o := small(3)
	o.Topology = Line
	m := newMiddle(t, o, 0)
	defer m.close()
	m.out.Want(ownOf(m)) // the lane is full
	x := newAsker(m.n.router, link.MakeID(3, 1))
	m.n.router.tunnels.add(x)
	x.goes(m.out.link) // it sends what it has, which is open
	w := waiter{source: x.Tunnel}
	require.True(t, m.out.waiting(w))
	x.Drop() // as dial does
	x.Close()
	require.False(t, m.out.waiting(w))
}

// So does one that takes another route.
func TestATunnelThatGoesAnotherWayWaitsForItsFirstLaneNoMore(t *testing.T) {
	m := newMiddle(t, small(3), 0)
	defer m.close()
	m.out.Want(ownOf(m)) // the lane is full
	x, right := tunnelOverRelay(m)
	x.Publish(0, 1, 8)
	w := waiter{source: x.Tunnel}
	require.True(t, m.out.waiting(w))
	r := m.n.router
	left := r.sides[Left].Load()
	r.links[left.key()] = left // the only one of which it knows
	x.Reroute()
	require.Equal(t, left, x.via.Load())
	require.False(t, right.out[0].waiting(w))
	x.Drop()
	x.Close()
}

// The memory of a lane whose link has ended may be gone. A goroutine that was to go on with the
// lane does not load from it.
func TestTheMemoryOfALaneThatHasEndedIsNotLoaded(t *testing.T) {
	o := small(3)
	o.Topology = Line
	m := newMiddle(t, o, 0)
	defer m.close()
	m.out.Want(&greedy{f: frame.Header{Kind: frame.Ack, Src: m.n.id, Dst: link.MakeID(3, 1), Hops: 3}})
	require.True(t, m.out.waits.Load())
	m.out.close()
	m.out.mine = nil
	m.out.poll()
	m.out.pollOn()
}
