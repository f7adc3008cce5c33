package ring

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
func (t *tunnel) lookedAfter() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.timer.at.IsZero()
}

// A tunnel is closed here, and its other end never acknowledges that. It is forgotten in
// the end. Until then it has no window.
func TestAClosedTunnelIsForgottenWithoutAnAcknowledgement(t *testing.T) {
	leak.Check(t)
	a, _, _ := stuckTunnels(t, func(*Options) {})
	r := a.router
	a.Publish(0, 1, 8)
	require.NoError(t, a.Close())
	require.Contains(t, r.tunnels.all(), a)
	require.Empty(t, a.Inbound())
	require.True(t, a.lookedAfter())
	closed := time.Now()
	a.expire(closed.Add(arq.LingerFor / 2))
	require.Contains(t, r.tunnels.all(), a)
	require.True(t, a.lookedAfter(), "nothing looks after it any more")
	a.expire(closed.Add(arq.LingerFor))
	require.NotContains(t, r.tunnels.all(), a)
}

// The same holds if not even the first frame found room in the lane.
func TestAClosedTunnelWhoseLaneIsStuckIsLookedAfter(t *testing.T) {
	leak.Check(t)
	a, _, _ := stuckTunnels(t, func(*Options) {})
	for a.unsent() < 2 {
		a.Publish(0, 1, 8)
	}
	x := newAnswerer(a.router, linkKey{}, &frame.Header{
		Src: a.remote, Epoch: link.NewEpoch(), Arg: uint32(a.router.opts.Window >> 10), Ask: 16,
	})
	a.router.tunnels.add(x)
	x.reroute()
	require.NoError(t, x.Close())
	require.True(t, x.lookedAfter())
	x.expire(time.Now().Add(arq.LingerFor))
	require.NotContains(t, a.router.tunnels.all(), x)
}
