package ring

import (
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/leak"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/stretchr/testify/require"
)

// What a lane does not take is not piled up behind it: a word that is stored later
// would have to wait for all of it.
func TestStorersWaitForTheLane(t *testing.T) {
	leak.Check(t)
	o := small(2)
	o.Topology, o.FrameBytes, o.Retention = Line, 256, 1<<20
	f := newFabric(t, o)
	a, b := f.tunnels(t, 1, 2)
	defer a.Close()
	defer b.Close()
	ta := a.(*tunnel)
	unsent := func() int {
		ta.mu.Lock()
		defer ta.mu.Unlock()
		return ta.kept.count - ta.high
	}
	f.cut(0)
	const words = 40 * maxUnsent
	stored := make(chan struct{})
	go func() {
		defer close(stored)
		for i := range words {
			out := a.Outbound()
			out.Write(64+256*i, make([]byte, 200)) // no two fit in a frame
			out.Publish64(0, uint64(i+1))
		}
	}()
	for end := time.Now().Add(60 * time.Second); unsent() < maxUnsent; {
		require.True(t, time.Now().Before(end))
		time.Sleep(time.Millisecond)
	}
	for range 100 {
		require.LessOrEqual(t, unsent(), maxUnsent)
		time.Sleep(100 * time.Microsecond)
	}
	select {
	case <-stored:
		t.Fatal("all is stored, and the cable is cut")
	default:
	}
	f.connect(0)
	<-stored
	a.Order()
	require.EqualValues(t, words, ntb.Load64(b.Inbound(), 0))
}
