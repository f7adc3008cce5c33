package ring

import (
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/leak"
	"github.com/stretchr/testify/require"
)

// passes simulates that time d has passed since Close. It reports whether timeout
// will be called.
func (t *tunnel) passes(d time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closedAt = t.closedAt.Add(-d)
	return t.guarding
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
	require.True(t, a.passes(closedLimit/2), "nothing looks after it")
	a.timeout()
	require.Contains(t, r.tunnels.all(), a)
	require.True(t, a.passes(closedLimit/2), "nothing looks after it any more")
	a.timeout()
	require.NotContains(t, r.tunnels.all(), a)
}

// The same holds if not even the first frame found room in the lane.
func TestAClosedTunnelWhoseLaneIsStuckIsLookedAfter(t *testing.T) {
	leak.Check(t)
	a, _, _ := stuckTunnels(t, func(*Options) {})
	for a.unsent() < 2 {
		a.Publish(0, 1, 8)
	}
	x := newTunnel(a.router, a.remote, newEpoch())
	x.opening(a.router.opts.Window, 16)
	a.router.tunnels.add(x)
	x.reroute()
	require.NoError(t, x.Close())
	require.True(t, x.passes(closedLimit), "nothing looks after it")
	x.timeout()
	require.NotContains(t, a.router.tunnels.all(), x)
}
