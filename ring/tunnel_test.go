package ring

import (
	"testing"

	"github.com/ntbnet/ntbnet/internal/arq"
	"github.com/ntbnet/ntbnet/internal/frame"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/stretchr/testify/require"
)

// tunnelOverRelay returns a tunnel of a relay to a node behind its right neighbour.
func tunnelOverRelay(m *relay) (x *tunnelEnd, right *Link) {
	r := m.n.router
	x = newAnswerer(r, linkKey{Right, 0}, &frame.Header{
		Src: link.MakeID(3, 1), Epoch: 9, Arg: uint32(m.o.Window >> 10), Ask: uint32(m.o.Retention >> 10),
	})
	r.tunnels.add(x)
	right = r.sides[Right].Load()
	x.goes(right)
	return x, right
}

// Words that are published, frames that come, and their acknowledgements, go through a tunnel
// without an allocation.
func TestATunnelDoesNotAllocate(t *testing.T) {
	if lock.Checked {
		t.Skip("checked locks allocate")
	}
	o := small(3)
	o.Topology = Line
	m := newMiddle(t, o, 0)
	defer m.close()
	r := m.n.router
	x, right := tunnelOverRelay(m)
	x.Publish(0, 1, 8) // the first frame is accept
	body := publishes([2]uint64{8, 7})
	came := frame.Header{
		Kind: frame.Data, Src: x.Remote, Dst: m.n.id, To: x.Index, Epoch: x.Epoch, Ack: 2, Length: uint32(len(body)),
	}
	step := func() {
		m.to.Publish32(laneCredit, uint32(m.out.hop))
		x.Publish(0, 2, 8)
		came.Seq++
		r.deliver(right.in[0], &came, body)
		came.Ack++
	}
	step()
	require.Zero(t, testing.AllocsPerRun(1000, step))
	require.Equal(t, arq.Up, x.State())
	require.EqualValues(t, 1002, x.Stats().Sent, "the first word waited for room, and went with the second")
	require.EqualValues(t, 1003, x.Expects())
	require.EqualValues(t, 7, ntb.Load64(x.Inbound(), 8))
	x.Drop()
	x.Close()
}

// A word is published, and another one comes that acknowledges it.
func BenchmarkTunnel(b *testing.B) {
	o := small(3)
	o.Topology = Line
	m := newMiddle(b, o, 0)
	defer m.close()
	x, right := tunnelOverRelay(m)
	body := publishes([2]uint64{8, 7})
	came := frame.Header{
		Kind: frame.Data, Src: x.Remote, Dst: m.n.id, To: x.Index, Epoch: x.Epoch, Ack: 1, Length: uint32(len(body)),
	}
	for b.Loop() {
		m.to.Publish32(laneCredit, uint32(m.out.hop))
		x.Publish(0, 2, 8)
		came.Seq++
		m.n.router.deliver(right.in[0], &came, body)
		came.Ack = uint32(x.Stats().Sent) + 1
	}
	x.Drop()
	x.Close()
}

// A word that is published goes when the lane has room. A store behind it, which joins its
// frame, does not keep it until that is published too.
func TestAPublishedWordIsNotHeldBackByAStoreBehindIt(t *testing.T) {
	o := small(3)
	o.Topology = Line
	m := newMiddle(t, o, 0)
	defer m.close()
	x, _ := tunnelOverRelay(m)
	x.Publish(0, 1, 8) // the first frame is accept
	x.Publish(8, 2, 8)
	x.Store64(16, 3)
	sent := func() uint64 { return x.Stats().Sent }
	for range 4 {
		m.takenAll()
	}
	require.EqualValues(t, 1, sent())
	require.False(t, m.out.waiting(waiter{source: x.Tunnel}))
	x.Store64(24, 4)
	x.Store64(32, 5)
	require.EqualValues(t, 1, sent(), "these are not published")
	x.Drop()
	x.Close()
}
