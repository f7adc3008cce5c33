package job

import (
	"context"
	"testing"

	"github.com/ntbnet/ntbnet/internal/symheap"
	"github.com/stretchr/testify/require"
)

// A goroutine waits for another one of its own PE. One that gives up leaves the lock
// to that one.
func TestASecondSetOfThePEWaits(t *testing.T) {
	run(t, 1, "mem:second", Options{}, func(w *World) {
		ctx := context.Background()
		word := zeros(t, w, 1)
		lock := w.Lock(word.Off)
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
		require.NoError(t, w.Free(ctx, word.Off, 8)) // it is not cleared
		require.Equal(t, word, zeros(t, w, 1))
		require.NoError(t, lock.Set(ctx))
		require.NoError(t, lock.Clear(ctx))
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
			run(t, 1, "mem:badlock", Options{}, func(w *World) {
				ctx := context.Background()
				lock := w.Lock(zeros(t, w, 1).Off)
				overwrite := func() {
					symheap.Store4(w.heap.Base, lock.halves.Off+lockHalf*uintptr(words[0]), words[1])
				}
				if words[0] == lockTail {
					overwrite()
					require.ErrorIs(t, lock.Set(ctx), errNoLock)
				} else {
					require.NoError(t, lock.Set(ctx))
					overwrite()
					require.ErrorIs(t, lock.Clear(ctx), errNoLock)
				}
			})
		})
	}
}
