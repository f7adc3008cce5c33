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

// A goroutine waits for another one of its own PE. One that gives up leaves the lock
// to that one.
func TestASecondSetOfThePEWaits(t *testing.T) {
	run(t, 1, "mem:second", nil, func(w *World) {
		ctx := context.Background()
		lock, err := NewLock(ctx, w)
		require.NoError(t, err)
		require.NoError(t, lock.Set(ctx))
		got, err := lock.Test()
		require.NoError(t, err)
		require.False(t, got, "another goroutine has it")
		ended, cancel := context.WithCancel(ctx)
		cancel()
		require.ErrorIs(t, lock.Set(ended), context.Canceled)
		second := make(chan error)
		go func() { second <- lock.Set(ctx) }()
		require.NoError(t, lock.Clear(ctx))
		require.NoError(t, <-second)
		require.NoError(t, lock.Clear(ctx))
		require.Panics(t, func() { _ = lock.Clear(ctx) })
		got, err = lock.Test()
		require.NoError(t, err)
		require.True(t, got)
		require.NoError(t, lock.Free(ctx)) // it is not cleared
		again, err := NewLock(ctx, w)
		require.NoError(t, err)
		require.Equal(t, lock, again)
		require.NoError(t, again.Set(ctx))
		require.NoError(t, again.Clear(ctx))
		require.Empty(t, w.turns.all)
	})
}

// Another PE may have written anything to the words of a lock. They are checked before
// they are used as a PE's number.
func TestALockWhoseWordsAreNoneIsAnError(t *testing.T) {
	for name, words := range map[string][2]uint32{
		"tail":     {lockTail, 99},
		"next":     {lockMine, lockIn | 99},
		"big tail": {lockTail, 1 << 31},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, 1, "mem:badlock", nil, func(w *World) {
				ctx := context.Background()
				lock, err := NewLock(ctx, w)
				require.NoError(t, err)
				half := lock.halves.Local()
				if words[0] == lockTail {
					half[lockTail] = words[1]
					require.ErrorIs(t, lock.Set(ctx), errNoLock)
				} else {
					require.NoError(t, lock.Set(ctx))
					half[lockMine] = words[1]
					require.ErrorIs(t, lock.Clear(ctx), errNoLock)
				}
			})
		})
	}
}
