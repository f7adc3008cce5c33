package gate

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// Nobody is inside once ShutAndWait has returned, and nobody gets in.
func TestAShutGateIsEmpty(t *testing.T) {
	for range 200 {
		g := New()
		var inside, entered atomic.Int32
		var gone atomic.Bool
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for g.Enter() {
					inside.Add(1)
					entered.Add(1)
					if gone.Load() {
						t.Error("inside of a shut gate")
					}
					inside.Add(-1)
					g.Leave()
					runtime.Gosched()
				}
			})
		}
		for entered.Load() < 10 {
			runtime.Gosched()
		}
		g.ShutAndWait()
		gone.Store(true)
		require.Zero(t, inside.Load())
		wg.Wait()
		require.False(t, g.Enter())
	}
}
