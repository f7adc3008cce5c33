package ring

import (
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/leak"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/stretchr/testify/require"
)

// A frame for a tunnel that does not exist is answered, even while another source waits
// for the lane. Each such tunnel of that source gets an answer.
func TestAResetWaitsForItsTurn(t *testing.T) {
	o := small(3)
	o.Topology, o.Slots = Line, 4
	m := newMiddle(t, o, 0)
	defer m.close()
	r := m.n.router
	link := r.sides[Right].Load()
	link.resets = &resetSender{link: link}
	r.links[linkKey{Right, 0}] = link
	own := &greedy{f: frame{kind: frameAck, src: m.n.id, dst: MakeID(3, 1), hops: 3}}
	own.push(m.out, false) // the lane is full, and it waits
	require.Equal(t, o.Slots-1, own.sent)
	for range 3 { // sent again, of course
		for number := range uint32(5) {
			r.deliver(&frame{kind: frameData, src: MakeID(3, 1), dst: m.n.id, to: number, from: 100 + number, epoch: 7}, nil)
		}
	}
	require.Len(t, link.resets.pending, 5)
	var reset []uint32
	for range 20 {
		hop := m.out.hop
		m.to.Publish32(laneCredit, uint32(hop)) // all were taken
		m.out.mu.Lock()
		m.out.free()
		m.out.serveOne()
		m.out.mu.Unlock()
		require.Greater(t, m.out.hop, hop)
		for ; hop < m.out.hop; hop++ {
			at := lanesAt + int(hop%uint64(o.Slots))*m.out.slotBytes()
			slot := m.right.Inbound()[at : at+m.out.slotBytes()]
			var f frame
			require.True(t, readFrame(slot, ntb.Load64(slot, 0), &f))
			if f.kind == frameReset {
				require.Equal(t, MakeID(3, 1), f.dst)
				require.Equal(t, uint32(7), f.epoch)
				reset = append(reset, f.to)
			}
		}
	}
	require.Equal(t, []uint32{100, 101, 102, 103, 104}, reset)
	require.Empty(t, link.resets.pending)
}

func TestResetsThatWaitAreNotTooMany(t *testing.T) {
	dev, _ := ntbmem.Pair(1 << 20)
	defer dev.Close()
	n := NewNode(MakeID(2, 1))
	require.NoError(t, n.Join(small(3)))
	defer n.Close()
	link, err := newLink(n.router, dev, Right)
	require.NoError(t, err)
	s := &resetSender{link: link}
	const more = 10
	for i := range uint32(maxResets + more) {
		s.add(frame{kind: frameReset, dst: MakeID(3, 1), to: i})
	}
	sent := int(link.out[0].hop) // there was room for these
	require.Len(t, s.pending, maxResets)
	require.Equal(t, uint32(more), s.pending[0].to)
	require.Less(t, sent, more)
}

// A frame that was lost for long is sent again late. News of the host mean that it may
// have started anew. So the frame is sent at once then.
func TestATunnelInBackOffTriesAtOnceWhenNewsCome(t *testing.T) {
	leak.Check(t)
	f := newFabric(t, small(4))
	f.agrees(t, 3, "at the beginning")
	a, b := f.tunnels(t, 1, 3)
	defer a.Close()
	defer b.Close()
	a.Order()
	ta := a.(*tunnel)
	kept := func() int {
		ta.mu.Lock()
		defer ta.mu.Unlock()
		return ta.kept.count
	}
	require.Eventually(t, func() bool { return kept() == 0 }, 30*time.Second, time.Millisecond)
	ta.mu.Lock()
	ta.kept.push(retained{}) // as if it was sent, and lost, again and again
	ta.next++
	ta.high++
	ta.patience, ta.progress = resendMost, time.Now()
	was := ta.resends
	ta.mu.Unlock()
	r := f.nodes[0].router
	r.mu.Lock()
	n := *r.news[3]
	r.mu.Unlock()
	n.number++
	r.newsFrom(r.sides[Right].Load(), &frame{
		kind: frameNews, src: n.id, epoch: uint32(n.number), seq: uint32(n.number >> 32),
		bells: uint32(n.sides[Left]) | uint32(n.sides[Right])<<8, arg: n.links[Left], ask: n.links[Right],
	}, nil)
	require.Eventually(t, func() bool { return ta.beginnings() > was }, 30*time.Second, time.Millisecond)
	require.Eventually(t, func() bool { return kept() == 0 }, 30*time.Second, time.Millisecond)
}

// A node that asks for a tunnel knows of none. If there is one already, its other end
// belongs to a process that has ended. From then on nobody who wants a peer gets it.
func TestATunnelThatIsAskedForReplacesOneThatIsUp(t *testing.T) {
	leak.Check(t)
	f := newFabric(t, small(4))
	old, err := f.nodes[0].Peer(within(t), MakeID(3, 1))
	require.NoError(t, err)
	_, err = f.nodes[2].router.ask(within(t), MakeID(1, 1))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		p, err := f.nodes[0].Peer(within(t), MakeID(3, 1))
		return err == nil && p != old
	}, 30*time.Second, time.Millisecond)
	require.True(t, old.Up(), "what uses it may go on")
}
