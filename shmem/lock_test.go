package shmem

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// modes are the ways in which PEs reach each other.
var modes = map[string][]Option{"mapped": nil, "strict": {Strict()}}

// each runs body on PEs of one process, for some numbers of them, in both modes.
func each(t *testing.T, sizes []int, body func(t *testing.T, w *World)) {
	for mode, opts := range modes {
		for _, n := range sizes {
			t.Run(fmt.Sprintf("%s/%d", mode, n), func(t *testing.T) {
				run(t, n, fmt.Sprintf("mem:%s-%d", mode, n), opts, func(w *World) { body(t, w) })
			})
		}
	}
}

func TestALockExcludes(t *testing.T) {
	const rounds = 200
	each(t, []int{1, 2, 3, 7}, func(t *testing.T, w *World) {
		ctx := context.Background()
		lock, err := NewLock(ctx, w)
		require.NoError(t, err)
		count, err := AllocZeroed[int64](ctx, w, 1)
		require.NoError(t, err)
		for i := range rounds {
			if i%4 == 3 {
				for {
					got, err := lock.Test()
					require.NoError(t, err)
					if got {
						break
					}
					time.Sleep(time.Microsecond)
				}
			} else {
				require.NoError(t, lock.Set(ctx))
			}
			// The addition is not atomic: only the lock keeps additions from being
			// lost.
			v := G(w.Ctx(), count, 0, 0)
			P(w.Ctx(), count, 0, v+1, 0)
			require.NoError(t, lock.Clear(ctx))
		}
		require.NoError(t, w.Team().Barrier(ctx))
		require.Equal(t, int64(rounds*w.NumPEs()), G(w.Ctx(), count, 0, 0))
		require.NoError(t, lock.Free(ctx))
	})
}

func TestASetThatWasGivenUpGoesOn(t *testing.T) {
	each(t, []int{2}, func(t *testing.T, w *World) {
		ctx := context.Background()
		lock, err := NewLock(ctx, w)
		require.NoError(t, err)
		if w.PE() == 0 {
			require.NoError(t, lock.Set(ctx))
		}
		require.NoError(t, w.Team().Barrier(ctx))
		if w.PE() == 1 {
			soon, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
			defer cancel()
			require.ErrorIs(t, lock.Set(soon), context.DeadlineExceeded)
			got, err := lock.Test()
			require.NoError(t, err)
			require.False(t, got)
		}
		require.NoError(t, w.Team().Barrier(ctx))
		if w.PE() == 0 {
			require.NoError(t, lock.Clear(ctx))
			require.Panics(t, func() { _ = lock.Clear(ctx) })
		} else {
			require.NoError(t, lock.Set(ctx))
			require.NoError(t, lock.Clear(ctx))
		}
		require.NoError(t, w.Team().Barrier(ctx))
		got, err := lock.Test()
		require.NoError(t, err)
		if got {
			require.NoError(t, lock.Clear(ctx))
		}
	})
}
