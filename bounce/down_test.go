package bounce

import (
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// Who has read that the other side is gone must not write as if it was there.
func TestAReadThatFindsTheEndIsNotBeforeTheEndOfWrites(t *testing.T) {
	pa, pb := plainPools(t, Options{})
	c, _ := connect(t, pa, pb)
	spin := func(ok func() bool) {
		for i := 1; !ok(); i++ {
			if i%1000 == 0 {
				runtime.Gosched()
			}
		}
	}
	const rounds = 20_000
	var round, seen, early atomic.Int64
	go func() {
		for r := int64(1); r <= rounds; r++ {
			spin(func() bool { return round.Load() == r })
			spin(func() bool { return c.r.waiter.stop.Load()&stopDown != 0 })
			if c.w.waiter.stop.Load()&stopDown == 0 {
				early.Add(1)
			}
			seen.Store(r)
		}
	}()
	within(t, func() {
		for r := int64(1); r <= rounds; r++ {
			round.Store(r)
			c.linkDown()
			spin(func() bool { return seen.Load() == r })
			c.state.over.And(^uint32(stopDown))
			c.r.waiter.stop.And(^uint32(stopDown))
			c.w.waiter.stop.And(^uint32(stopDown))
		}
	})
	require.Zero(t, early.Load())
}
