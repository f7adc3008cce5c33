package ring

import (
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/frame"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/stretchr/testify/require"
)

// flooded returns a relay whose left neighbour stores another frame for each that is
// taken, all of them for dst.
func flooded(t *testing.T, dst link.ID) (m *relay, l, r *Link) {
	t.Helper()
	o := small(3)
	o.Topology = Line
	refill := func(_ frame.Header, sent bool) {
		// The queue is full again as soon as a slot is free.
		for !sent && m.hop < m.in.next.Load()+uint64(m.o.Slots)-1 {
			m.put()
		}
	}
	m, err := newRelay(func(window int) (near, far ntb.Device) {
		near, far = ntbmem.Pair(window)
		return &spied{near, &o, refill}, far
	}, o, 0)
	require.NoError(t, err)
	m.f.Kind, m.f.Dst = frame.Ack, dst
	m.f.Encode(&m.header)
	l, r = m.n.router.sides[Left].Load(), m.n.router.sides[Right].Load()
	for range o.Slots {
		m.put()
	}
	l.start()
	r.start()
	return m, l, r
}

func TestALinkEndsWhoseNeighbourGoesOnStoring(t *testing.T) {
	leak.Check(t)
	m, l, r := flooded(t, link.MakeID(2, 1))
	ends(t, "the first look", func() {
		for l.in[0].next.Load() < 100 {
			time.Sleep(time.Millisecond)
		}
	})
	l.Close()
	ends(t, "the link", func() { <-l.Done() })
	r.Close()
	ends(t, "the other link", func() { <-r.Done() })
	l.release() // that of the direct peers, of which there are none
	r.release()
	ends(t, "Close", m.n.Close)
}

// Frames that wait for a link that ends are dropped. The neighbour that sent them
// goes on.
func TestALinkEndsThatANeighbourGoesOnStoringFor(t *testing.T) {
	leak.Check(t)
	m, l, r := flooded(t, link.MakeID(3, 1))
	ends(t, "filling the right link", func() {
		for !l.in[0].blocked.Load() {
			time.Sleep(time.Millisecond)
		}
	})
	r.Close()
	ends(t, "the link", func() { <-r.Done() })
	l.Close()
	ends(t, "the other link", func() { <-l.Done() })
	l.release()
	r.release()
	ends(t, "Close", m.n.Close)
}

// credited is a device whose neighbour gives credit for each frame at once.
type credited struct {
	ntb.Device
	give func()
}

func (c credited) RingDoorbell(bit int) { c.give(); c.Device.RingDoorbell(bit) }

// roomForEver returns a relay whose right neighbour takes each frame at once.
func roomForEver(t *testing.T) *relay {
	o := small(3)
	o.Topology, o.Slots = Line, 4
	m := newMiddle(t, o, 0)
	r := m.n.router.sides[Right].Load()
	var arm uint32
	r.dev = credited{r.dev, func() { // called with the lane's lock, before the next frame
		arm++
		m.to.Publish32(laneDataArm, arm)
		m.to.Publish32(laneCredit, uint32(m.out.hop-1))
	}}
	m.to.Publish32(laneDataArm, 1<<31) // a doorbell for each frame
	return m
}

// A worker that looks whether its lane has room comes back to the frames that have come.
func TestALookAtALaneWithRoomForEverEnds(t *testing.T) {
	m := roomForEver(t)
	defer m.close()
	m.out.turns.join(waiter{source: ownOf(m)}, true)
	m.out.waits.Store(true)
	require.True(t, m.out.pollSome())
	require.LessOrEqual(t, m.sent(), uint64(turnsOfRun))
}

// A lane always has room, and always a source that waits for it. It does not keep
// callers of want and poll, and ends with its link.
func TestALaneWithRoomForEverKeepsNobody(t *testing.T) {
	leak.Check(t)
	m := roomForEver(t)
	e := ownOf(m)
	ends(t, "want", func() { m.out.Want(e) })
	ends(t, "poll", m.out.poll)
	ends(t, "poll, by another", m.out.poll)
	ends(t, "that others go on", func() {
		for was := m.sent(); m.sent() < was+1000; {
			time.Sleep(time.Millisecond)
		}
	})
	m.out.link.Close()
	ends(t, "the lane", func() {
		for m.out.polling.Load() > 0 {
			time.Sleep(time.Millisecond)
		}
	})
	m.close()
}

func (m *relay) sent() uint64 {
	m.out.mu.Lock()
	defer m.out.mu.Unlock()
	return m.out.stats.ownFrames
}
