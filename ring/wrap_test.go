package ring

import (
	"testing"

	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/stretchr/testify/require"
)

// A lane goes on when the hop numbers begin again, however many slots it has.
func TestLaneGoesOnAfterAllHopNumbers(t *testing.T) {
	for _, slots := range []int{2, 3, 5, 8} {
		m, err := newRelay(func(n int) (a, b ntb.Device) { return ntbmem.Pair(n) }, Options{
			Hosts: 3, Topology: Line, Slots: slots, FrameBytes: 256, Window: link.MinWindow, Retention: 1 << 10,
		}, 64)
		require.NoError(t, err)
		defer m.close()
		const before = 1<<32 - 2 // frames
		m.hop = before
		m.in.next.Store(before + 1)
		m.out.hop = before
		for lap := range 3 {
			for range slots {
				m.put()
			}
			m.in.drain()
			taken := (lap + 1) * slots
			require.Equal(t, uint32(before+taken), ntb.Load32(m.left.Inbound(), laneCredit))
			at := lanesAt + (before+taken-1)%slots*m.out.slotBytes()
			require.Equal(t, uint32(before+taken), uint32(ntb.Load64(m.right.Inbound(), at)), "slots %d", slots)
			m.to.Publish32(laneCredit, uint32(taken))
		}
	}
}
