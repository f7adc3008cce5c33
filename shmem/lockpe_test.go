package shmem

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestALockExcludesGoroutinesOfOnePE(t *testing.T) {
	const goroutines, rounds = 3, 20
	each(t, []int{1, 2, 3}, func(t *testing.T, w *World) {
		ctx := context.Background()
		lock, err := NewLock(ctx, w)
		require.NoError(t, err)
		count, err := AllocZeroed[int64](ctx, w, 1)
		require.NoError(t, err)
		var inside atomic.Int32
		var wg sync.WaitGroup
		for g := range goroutines {
			wg.Go(func() {
				for i := range rounds {
					for got := false; !got; {
						if (g+i)%4 > 0 {
							if err := lock.Set(ctx); err != nil {
								t.Error(err)
								return
							}
							break
						}
						if got, err := lock.Test(); err != nil {
							t.Error(err)
							return
						} else if got {
							break
						}
						time.Sleep(time.Microsecond)
					}
					if inside.Add(1) != 1 {
						t.Error("two goroutines have the lock")
					}
					v := G(w.Ctx(), count, 0, 0)
					P(w.Ctx(), count, 0, v+1, 0)
					inside.Add(-1)
					if err := lock.Clear(ctx); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		require.NoError(t, w.Team().Barrier(ctx))
		require.Equal(t, int64(goroutines*rounds*w.NumPEs()), G(w.Ctx(), count, 0, 0))
		require.NoError(t, lock.Free(ctx))
	})
}
