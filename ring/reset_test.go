package ring

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/frame"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/stretchr/testify/require"
)

// waits requires that a sendQueue comes to wait for room.
func (s *sendQueue[T]) waits(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		o := s.link.out[0]
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.turns.waiting(waiter{source: s})
	}, 60*time.Second, time.Millisecond)
}

// A frame for a tunnel that does not exist is answered, even while another source waits
// for the lane. Each such tunnel of that source gets an answer.
func TestAResetWaitsForItsTurn(t *testing.T) {
	o := small(3)
	o.Topology, o.Slots = Line, 4
	m := newMiddle(t, o, 0)
	defer m.close()
	r := m.n.router
	next := r.sides[Right].Load()
	next.resets = newResets(next)
	r.links[linkKey{Right, 0}] = next
	own := &greedy{f: frame.Header{Kind: frame.Ack, Src: m.n.id, Dst: link.MakeID(3, 1), Hops: 3}}
	m.out.Want(own) // the lane is full, and it waits
	require.Equal(t, o.Slots-1, own.sent)
	for range 3 { // sent again, of course
		for number := range uint32(5) {
			r.deliver(next.in[0], &frame.Header{Kind: frame.Data, Src: link.MakeID(3, 1), Dst: m.n.id, To: number, From: 100 + number, Epoch: 7}, nil)
		}
	}
	next.resets.waits(t)
	require.Len(t, next.resets.pending, 5)
	var reset []uint32
	for range 20 {
		hop := m.out.hop
		m.to.Publish32(laneCredit, uint32(hop)) // all were taken
		m.out.poll()
		require.Greater(t, m.out.hop, hop)
		for ; hop < m.out.hop; hop++ {
			at := lanesAt + int(hop%uint64(o.Slots))*m.out.slotBytes()
			slot := m.right.Inbound()[at : at+m.out.slotBytes()]
			var f frame.Header
			require.True(t, frame.Read(slot, ntb.Load64(slot, 0), &f))
			if f.Kind == frame.Reset {
				require.Equal(t, link.MakeID(3, 1), f.Dst)
				require.Equal(t, uint32(7), f.Epoch)
				reset = append(reset, f.To)
			}
		}
	}
	require.ElementsMatch(t, []uint32{100, 101, 102, 103, 104}, reset)
	require.Empty(t, next.resets.pending)
}

// gated is a device whose stores and doorbells block while it is shut, as those of a bridge
// do that takes none.
type gated struct {
	ntb.Device
	mu   sync.Mutex
	shut chan struct{} // nil: it is open; guarded by mu
	held atomic.Int32  // how many have come while it was shut
}

func (g *gated) pass() {
	g.mu.Lock()
	shut := g.shut
	g.mu.Unlock()
	if shut != nil {
		g.held.Add(1)
		<-shut
	}
}

// close shuts the gate until open is called.
func (g *gated) close() (open func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	shut := make(chan struct{})
	g.shut = shut
	return sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.shut = nil
		close(shut)
	})
}

func (g *gated) RingDoorbell(bit int) { g.pass(); g.Device.RingDoorbell(bit) }

func (g *gated) Outbound() ntb.Window {
	w := g.Device.Outbound()
	return ntb.SinkWindow(ntb.Basic(gatedSink{g, w}), w.Len())
}

type gatedSink struct {
	g   *gated
	win ntb.Window
}

func (s gatedSink) Store(off int, p []byte) { s.g.pass(); s.win.Write(off, p) }

func (s gatedSink) Publish(off int, v uint64, width int) {
	s.g.pass()
	if width == 4 {
		s.win.Publish32(off, uint32(v))
	} else {
		s.win.Publish64(off, v)
	}
}

// A reset goes over a link to another node than the one whose frame asks for it. While
// stores to that one block, all others' frames are taken.
func TestAResetToANeighbourThatTakesNothingKeepsNobody(t *testing.T) {
	leak.Check(t)
	o := small(3)
	o.Topology, o.Failover = Line, true
	var right *gated
	f := buildFabric(t, &fabric{o: o, wrap: func(host int, d Direction, dev ntb.Device) ntb.Device {
		if host == 2 && d == Right {
			right = &gated{Device: dev}
			return right
		}
		return dev
	}})
	// All link states must be there: they are sent, too.
	for host := 1; host <= 3; host++ {
		for _, n := range f.nodes {
			require.Eventually(t, func() bool { return n.Owner(host) != 0 && n.router.named(link.MakeID(host, 1)) },
				60*time.Second, time.Millisecond)
		}
	}
	open := right.close()
	t.Cleanup(open)
	o1 := f.nodes[0].router.sides[Right].Load().out[0]
	fr := frame.Header{Kind: frame.Data, Hops: 3, Src: link.MakeID(3, 1), Dst: link.MakeID(2, 1), To: 1000, Epoch: 7}
	for !o1.inject(&fr, nil) {
		time.Sleep(time.Millisecond)
	}
	require.Eventually(t, func() bool { return right.held.Load() > 0 }, 60*time.Second, time.Millisecond)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	p, err := f.nodes[0].Peer(ctx, link.MakeID(2, 1))
	require.NoError(t, err)
	require.True(t, p.Frames() != nil)
	ends(t, "Arrived", func() { p.Frames().Arrived(time.Hour) })
	open()
}

func TestResetsThatWaitAreNotTooMany(t *testing.T) {
	dev, _ := ntbmem.Pair(1 << 20)
	defer dev.Close()
	n := joined(t, link.MakeID(2, 1), small(3))
	defer n.Close()
	next, err := newLink(n.router, dev, Right)
	require.NoError(t, err)
	s := newResets(next)
	const more = 10
	for i := range uint32(maxResets + more) {
		s.add(frame.Header{Kind: frame.Reset, Dst: link.MakeID(3, 1), To: i})
	}
	s.waits(t)
	require.LessOrEqual(t, len(s.pending), maxResets)
	require.GreaterOrEqual(t, len(s.pending), maxResets-small(3).Slots, "there was room for these")
	require.Equal(t, uint32(maxResets+more-1), s.pending[len(s.pending)-1].To, "the oldest are dropped")
}

// A frame that was lost for long is sent again late. A link state of the host means that it may
// have started anew. So the frame is sent at once then.
func TestATunnelInBackOffTriesAtOnceWhenALinkStateComes(t *testing.T) {
	leak.Check(t)
	f := newFabric(t, small(4))
	f.agrees(t, 3, "at the beginning")
	a, b := f.tunnels(t, 1, 3)
	defer a.Close()
	defer b.Close()
	a.settle()
	ta := a
	require.Eventually(t, func() bool { return ta.kept() == 0 }, 30*time.Second, time.Millisecond)
	ta.losesForLong(time.Minute)
	was := ta.Stats().Restarts
	r := f.nodes[0].router
	r.mu.Lock()
	n := *r.linkStates[3]
	r.mu.Unlock()
	n.number++
	r.receiveLinkState(r.sides[Right].Load(), &frame.Header{
		Kind: frame.LinkState, Src: n.id, Epoch: uint32(n.number), Seq: uint32(n.number >> 32),
		States: uint32(n.sides[Left]) | uint32(n.sides[Right])<<8, Arg: n.links[Left], Ask: n.links[Right],
	}, nil)
	require.Eventually(t, func() bool { return ta.Stats().Restarts > was }, 30*time.Second, time.Millisecond)
	require.Eventually(t, func() bool { return ta.kept() == 0 }, 30*time.Second, time.Millisecond)
}

// A node that asks for a tunnel knows of none. If there is one already, its other end
// belongs to a process that has ended. From then on nobody who wants a peer gets it.
func TestATunnelThatIsAskedForReplacesOneThatIsUp(t *testing.T) {
	leak.Check(t)
	f := newFabric(t, small(4))
	old, err := f.nodes[0].Peer(within(t), link.MakeID(3, 1))
	require.NoError(t, err)
	_, err = f.nodes[2].router.ask(within(t), link.MakeID(1, 1))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		p, err := f.nodes[0].Peer(within(t), link.MakeID(3, 1))
		return err == nil && p != old
	}, 30*time.Second, time.Millisecond)
	require.True(t, old.Up(), "what uses it may go on")
}
