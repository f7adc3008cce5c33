package link

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/internal/testing/ntbfault"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/stretchr/testify/require"
)

// notes counts notifications.
type notes struct{ n atomic.Uint64 }

func (c *notes) Notified(Event) { c.n.Add(1) }

// A doorbell is rung once for each time that the peer's link goroutine sleeps. If
// that one is lost, later announcements do not ring.
func TestLostDoorbellIsMadeUpForWhileMoreIsAnnounced(t *testing.T) {
	leak.Check(t)
	x, y := ntbmem.Pair(1 << 20)
	a, b := ntbfault.Pair(x, y, ntbfault.Options{DropDoorbell: 1})
	pa, pb := join(t, a, b, newEcho(), newEcho())
	obj := &notes{}
	slot, err := pb.Attach(obj)
	require.NoError(t, err)
	for end := time.Now().Add(20 * guardEvery); obj.n.Load() == 0; {
		require.True(t, time.Now().Before(end), "nobody looked")
		pa.Notify(slot, Data)
		time.Sleep(guardEvery / 20)
	}
	require.Positive(t, pb.Stats().Rescues)
	require.Positive(t, a.Stats().DoorbellsDropped)
}
