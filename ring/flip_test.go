package ring

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/leak"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/stretchr/testify/require"
)

// flips is a device whose peer has written another epoch at each look.
type flips struct {
	ntb.Device
	epoch int
	looks atomic.Uint32
}

func (d *flips) Spad(i int) uint32 {
	if i == d.epoch {
		return d.looks.Add(1)%3 + 1
	}
	return d.Device.Spad(i)
}

// A bring-up whose peer changes its words all the time has its time between two looks, and
// ends with its context.
func TestABringUpWhosePeerChangesItsEpochIsNotBusy(t *testing.T) {
	leak.Check(t)
	for _, c := range []struct {
		name  string
		epoch int
		up    func(ctx context.Context, dev ntb.Device, number int) error
		every time.Duration
	}{
		{"peer", spadEpoch, func(ctx context.Context, dev ntb.Device, number int) error {
			n := NewNode(MakeID(1, number))
			defer n.Close()
			_, err := n.Up(ctx, dev)
			return err
		}, retryEvery},
		{"link", linkEpochSpad, func(ctx context.Context, dev ntb.Device, number int) error {
			n := NewNode(MakeID(number, 1))
			defer n.Close()
			if err := n.Join(small(3)); err != nil {
				return err
			}
			_, err := n.Link(ctx, dev, []Direction{Right, Left}[number-1])
			return err
		}, retryEvery / 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			x, y := ntbmem.Pair(1 << 20)
			d := &flips{Device: x, epoch: c.epoch}
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan error, 2)
			begin := time.Now()
			go func() { ended <- c.up(ctx, d, 1) }()
			go func() { ended <- c.up(ctx, y, 2) }()
			const periods = 40
			time.Sleep(periods * c.every)
			looks := d.looks.Load()
			most := 2 * (int(time.Since(begin)/c.every) + 2)
			cancel()
			ends(t, "bring-up", func() { <-ended; <-ended })
			require.NotZero(t, looks)
			require.LessOrEqual(t, int(looks), most, "two looks in a period at the most")
		})
	}
}

// One that is refused, too, ends when it has been for long.
func TestARefusedNeighbourThatChangesItsEpochKeepsNobody(t *testing.T) {
	leak.Check(t)
	x, y := ntbmem.Pair(1 << 20)
	n := NewNode(MakeID(1, 1))
	defer n.Close()
	require.NoError(t, n.Join(small(3)))
	y.SetPeerSpad(linkIDSpad, uint32(MakeID(2, 1)))
	y.SetPeerSpad(linkShapeSpad, 4<<16) // another number of nodes
	y.SetPeerSpad(linkMagicSpad, linkMagic<<16|linkVersion)
	ends(t, "Link", func() {
		_, err := n.Link(context.Background(), &flips{Device: x, epoch: linkEpochSpad}, Right)
		require.ErrorIs(t, err, ErrMismatch)
	})
}
