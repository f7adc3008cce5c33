package bounce

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// last is the number of the round that is not played.
const last = 20_000

// A side that has read that the other one is gone must not write as if it was there.
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
	var round, seen, early atomic.Int64
	go func() {
		for r := int64(1); ; r++ {
			spin(func() bool { return round.Load() >= r })
			if round.Load() == last {
				return
			}
			spin(func() bool { return c.r.waiter.stop.Load()&stopDown != 0 })
			if c.w.waiter.stop.Load()&stopDown == 0 {
				early.Add(1)
			}
			seen.Store(r)
		}
	}()
	within(t, func() {
		start := time.Now()
		for r := int64(1); r < last && time.Since(start) < 2*time.Second; r++ {
			round.Store(r)
			c.linkDown()
			spin(func() bool { return seen.Load() == r })
			c.state.over.And(^uint32(stopDown))
			c.r.waiter.stop.And(^uint32(stopDown))
			c.w.waiter.stop.And(^uint32(stopDown))
		}
	})
	round.Store(last)
	require.Zero(t, early.Load())
}
