package tunnel

import (
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/arq"
	"github.com/ntbnet/ntbnet/internal/frame"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/stretchr/testify/require"
)

// lookedAfter reports whether the timer of a tunnel is set.
func (t *Tunnel) lookedAfter() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.timer.at.IsZero()
}

// A tunnel is closed here, and its other end never acknowledges that. It is forgotten in
// the end. Until then it has no window.
func TestAClosedTunnelIsForgottenWithoutAnAcknowledgement(t *testing.T) {
	leak.Check(t)
	a, _, _ := stuckTunnels(t, func(*Config) {})
	a.Publish(0, 1, 8)
	require.NoError(t, a.Close())
	require.False(t, a.removed.Load())
	require.Empty(t, a.Inbound())
	require.True(t, a.lookedAfter())
	closed := time.Now()
	a.expire(closed.Add(arq.LingerFor / 2))
	require.False(t, a.removed.Load())
	require.True(t, a.lookedAfter(), "nothing looks after it any more")
	a.expire(closed.Add(arq.LingerFor))
	require.True(t, a.removed.Load())
}

// The same holds if not even the first frame found room in the lane.
func TestAClosedTunnelWhoseLaneIsStuckIsLookedAfter(t *testing.T) {
	leak.Check(t)
	a, _, _ := stuckTunnels(t, func(*Config) {})
	for a.unsent() < 2 {
		a.Publish(0, 1, 8)
	}
	x := &side{lane: a.lane}
	x.Tunnel = Answer(a.config, x, &frame.Header{
		Src: a.Remote, Epoch: link.NewEpoch(), Arg: uint32(a.config.Window >> 10), Ask: 16,
	})
	x.Reroute()
	require.NoError(t, x.Close())
	require.True(t, x.lookedAfter())
	x.expire(time.Now().Add(arq.LingerFor))
	require.True(t, x.removed.Load())
}
