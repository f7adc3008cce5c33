package shmem

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// The system refuses the barrier all of a sudden. A PE may then overlook that this one is
// about to sleep. Its store is found all the same.
func TestAWaitDoesNotSleepWithoutABarrier(t *testing.T) {
	run(t, 1, "mem:nobarrier", nil, func(w *World) {
		s, err := AllocZeroed[int64](context.Background(), w, 1)
		require.NoError(t, err)
		w.self.fence = false
		failed := make(chan struct{}, 1)
		var calls atomic.Int32
		w.barrier = func() error {
			if calls.Add(1) == 3 {
				failed <- struct{}{}
			}
			return errors.New("refused")
		}
		go func() {
			<-failed
			atomicStore(&s.Local()[0], 1) // this PE is not woken
		}()
		require.NoError(t, WaitUntil(context.Background(), s, 0, Eq, 1))
		require.GreaterOrEqual(t, calls.Load(), int32(3), "it tries again")
	})
}
