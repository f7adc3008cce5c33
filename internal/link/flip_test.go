package link

import (
	"context"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/stretchr/testify/require"
)

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
