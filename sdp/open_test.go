package sdp

import (
	"sync"
	"syscall"
	"testing"

	"github.com/ntbnet/ntbnet/internal/leak"
	"github.com/stretchr/testify/require"
)

// Hosts that are opened at the same moment in the same words share one membership, or one
// error.
func TestHostsThatAreOpenedAtOnceShareAFabric(t *testing.T) {
	leak.Check(t)
	const n = 8
	open := func(spec string) (hosts [n]*Host, errs [n]error) {
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() { hosts[i], errs[i] = Open(spec) })
		}
		all.Wait()
		return hosts, errs
	}
	const spec = "line:opened-at-once?backend=mem&node=1&nodes=2"
	for range 20 {
		hosts, errs := open(spec)
		taken, err := Open(spec + "&spin=0") // the same node in other words
		require.Nil(t, taken)
		require.ErrorIs(t, err, syscall.EADDRINUSE)
		_, refused := open(spec + "&spin=0")
		for i, h := range hosts {
			require.NoError(t, errs[i])
			require.Same(t, hosts[0].stack, h.stack)
			require.ErrorIs(t, refused[i], syscall.EADDRINUSE)
		}
		for _, h := range hosts {
			require.NoError(t, h.Close())
		}
	}
	stacks.mu.Lock()
	defer stacks.mu.Unlock()
	for name := range stacks.open {
		require.NotContains(t, name, "opened-at-once")
	}
}
