package ring

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/frame"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/stretchr/testify/require"
)

// A bring-up whose peer changes its words all the time has its time between two looks, and
// ends with its context.
func TestABringUpOfLanesWhoseNeighbourChangesItsEpochIsNotBusy(t *testing.T) {
	leak.Check(t)
	for _, c := range []struct {
		name  string
		epoch int
		up    func(ctx context.Context, dev ntb.Device, number int) error
		every time.Duration
	}{
		{"link", linkEpochSpad, func(ctx context.Context, dev ntb.Device, number int) error {
			n, err := Join(link.NewNode(link.MakeID(number, 1)), small(3))
			if err != nil {
				return err
			}
			defer n.Close()
			_, err = n.Link(ctx, dev, []Direction{Right, Left}[number-1])
			return err
		}, bringUpEvery},
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
			require.Eventually(t, func() bool { return d.looks.Load() > 0 }, time.Minute, time.Millisecond)
			looks := d.looks.Load()
			most := 2 * (int(time.Since(begin)/c.every) + 2)
			cancel()
			ends(t, "bring-up", func() { <-ended; <-ended })
			require.LessOrEqual(t, int(looks), most, "two looks in a period at the most")
		})
	}
}

// lateSpad loses a scratchpad that this side writes, for some time.
type lateLaneSpad struct {
	ntb.Device
	i     int
	until time.Time
}

func (d lateLaneSpad) SetPeerSpad(i int, v uint32) {
	if i != d.i || time.Now().After(d.until) {
		d.Device.SetPeerSpad(i, v)
	}
}

// What is written while the bridge is being set up vanishes, up to some word. When the words are written
// again, any of them may be the first that is not there yet.
func TestABringUpOfLanesWaitsForEachWord(t *testing.T) {
	o := Options{Hosts: 3}
	for late := linkIDSpad; late <= linkSizeSpad; late++ {
		a, b := ntbmem.Pair(o.LinkWindow(0))
		var wg sync.WaitGroup
		for i, dev := range []ntb.Device{a, lateLaneSpad{b, late, time.Now().Add(50 * time.Millisecond)}} {
			n := joined(t, link.MakeID(i+1, 1), o)
			defer n.Close()
			wg.Go(func() {
				_, err := n.Link(within(t), dev, [...]Direction{Right, Left}[i])
				require.NoError(t, err, "word %d", late)
			})
		}
		wg.Wait()
	}
}

// One that is refused, too, ends when it has been for long.
func TestARefusedNeighbourThatChangesItsEpochKeepsNobody(t *testing.T) {
	leak.Check(t)
	x, y := ntbmem.Pair(1 << 20)
	n := joined(t, link.MakeID(1, 1), small(3))
	defer n.Close()
	y.SetPeerSpad(linkIDSpad, uint32(link.MakeID(2, 1)))
	y.SetPeerSpad(linkShapeSpad, 4<<16) // another number of nodes
	y.SetPeerSpad(linkLanesSpad, link.Version<<24|1)
	y.SetPeerSpad(linkFrameSpad, 1)
	y.SetPeerSpad(linkSizeSpad, 1)
	y.SetPeerSpad(linkMagicSpad, linkMagic<<16|frame.Version)
	ends(t, "Link", func() {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := n.Link(ctx, &flips{Device: x, epoch: linkEpochSpad}, Right)
		require.ErrorIs(t, err, ErrMismatch)
	})
}
