package ring

import (
	"testing"

	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/stretchr/testify/require"
)

// last is the frame that was put into a relay's right link last.
func (m *relay) last() (f frame) {
	at := int((m.out.hop-1)%uint64(m.o.Slots)) * m.out.slotBytes()
	slot := m.right.Inbound()[lanesAt+at:][:m.out.slotBytes()]
	readFrame(slot, ntb.Load64(slot, 0), &f)
	return f
}

// What comes for a tunnel that is not there is answered, also while another source waits
// for the lane, and each of its tunnels gets an answer.
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
	for range 3 { // it is sent again, of course
		for number := range uint32(5) {
			r.deliver(&frame{kind: frameData, src: MakeID(3, 1), dst: m.n.id, to: number, from: 100 + number, epoch: 7}, nil)
		}
	}
	require.Len(t, link.resets.pending, 5)
	var reset []uint32
	for range 20 {
		m.to.Publish32(laneCredit, uint32(m.out.hop))
		hop := m.out.hop
		m.out.mu.Lock()
		m.out.free()
		m.out.mu.Unlock()
		// One turn, so that each frame can be looked at.
		m.out.mu.Lock()
		if len(m.out.waiting) > 0 {
			s := m.out.waiting[0]
			_, greed := s.(*greedy)
			if greed {
				own.sent = 0
			}
			m.out.serveOne()
		}
		m.out.mu.Unlock()
		require.Greater(t, m.out.hop, hop)
		for at := hop; at < m.out.hop; at++ {
			slot := m.right.Inbound()[lanesAt+int(at%uint64(o.Slots))*m.out.slotBytes():][:m.out.slotBytes()]
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
