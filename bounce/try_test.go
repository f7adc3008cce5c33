package bounce

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A half is visited beside its calls: for its counters, and by the link's goroutine. A call that does not wait for
// another call waits for a visit.
func TestTriesWaitForVisits(t *testing.T) {
	pa, pb := memPools(t, Options{})
	a, b := connect(t, pa, pb)
	done := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-done:
				return
			default:
				_, _ = a.Stats(), b.Stats()
			}
		}
	}()
	defer func() { close(done); <-stopped }()
	buf := make([]byte, 1)
	for range 100000 {
		require.NoError(t, a.WaitWrite())
		n, err := a.TryWrite(buf)
		require.NoError(t, err, "write")
		require.Equal(t, 1, n)
		require.NoError(t, b.WaitRead())
		n, err = b.TryRead(buf)
		require.NoError(t, err, "read")
		require.Equal(t, 1, n)
	}
}
