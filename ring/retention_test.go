package ring

import (
	"fmt"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/leak"
	"github.com/stretchr/testify/require"
)

func TestRetentionByLengthOfRoute(t *testing.T) {
	for _, c := range []struct {
		set, frame, links, want int
	}{
		{0, DefaultFrame, 0, 2 << 20},
		{0, DefaultFrame, 2, 2 << 20},
		{0, DefaultFrame, 3, 8 << 20},
		{0, DefaultFrame, 60, 8 << 20},
		{0, 1 << 20, 2, 4 << 20},
		{0, 1 << 20, 3, 8 << 20},
		{4 << 20, DefaultFrame, 2, 4 << 20},
		{4 << 20, DefaultFrame, 3, 4 << 20},
	} {
		o, err := Options{Hosts: 2, FrameBytes: c.frame, Retention: c.set}.withDefaults()
		require.NoError(t, err)
		require.Equal(t, c.want, o.retention(c.links), "%+v", c)
	}
}

// Both ends of a tunnel keep as much as the length of their route asks for, tell each other,
// and are asked for acknowledgements by it.
func TestLongRoutesKeepMore(t *testing.T) {
	leak.Check(t)
	o := small(5)
	o.Topology, o.FrameBytes, o.Retention = Line, 4<<10, 0
	f := newFabric(t, o)
	for to, want := range map[int]int{2: 2 << 20, 3: 2 << 20, 4: 8 << 20, 5: 8 << 20} {
		t.Run(fmt.Sprintf("%d links", to-1), func(t *testing.T) {
			x, y := pairUp(t, f.nodes[0], f.nodes[to-1])
			defer y.Close()
			defer x.Close()
			for _, e := range []*tunnel{x, y} {
				require.Equal(t, want, e.retention)
				open := e.openFrame()
				require.EqualValues(t, want>>10, open.ask)
				require.Equal(t, want/4, e.ackAt(open))
				open.ask = 16
				require.Equal(t, 4<<10, e.ackAt(open), "the other end keeps less")
			}
			x.fill(t, want)
		})
	}
}

// fill stores data until the tunnel keeps about as much as it may, while no acknowledgement
// comes. It keeps no more.
func (t *tunnel) fill(test *testing.T, most int) {
	lane := &t.router.sides[Right].Load().in[t.seat.lane].mu
	lane.Lock()
	defer lane.Unlock()
	kept := func() int {
		t.mu.Lock()
		defer t.mu.Unlock()
		return t.arq.KeptBytes()
	}
	turn, _ := newTurn()
	piece := make([]byte, 3<<10)
	for end := time.Now().Add(60 * time.Second); kept() < most*7/8; {
		require.True(test, time.Now().Before(end), "it keeps %d bytes", kept())
		if t.TryStore(64, piece, turn) < len(piece) {
			time.Sleep(100 * time.Microsecond)
			continue
		}
		t.Publish(0, 1, 8)
		require.LessOrEqual(test, kept(), most)
	}
}
