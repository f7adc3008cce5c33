package job

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// With CNames, errors name calls as C does.
func TestErrorsNameCallsOfC(t *testing.T) {
	run(t, 2, "mem:cnames", Options{CNames: true, Debug: true}, func(w *World) {
		ctx := context.Background()
		_, err := w.Alloc(ctx, uint64(100+w.PE()), 8)
		require.ErrorIs(t, err, ErrMismatch)
		require.EqualError(t, err, "shmem: PEs differ: PE 0: shmem_malloc(100 bytes, aligned to 64); PE 1: shmem_malloc(101 bytes, aligned to 64)")
		for op, want := range map[string]string{
			"put": "shmem_put", "quiet": "shmem_quiet", "atomic fetch-add": "shmem_atomic_fetch_add", "atomic fetch-and": "shmem_atomic_fetch_and",
			"atomic compare-and-swap": "shmem_atomic_compare_swap", "atomic set": "shmem_atomic_set",
		} {
			require.Equal(t, want, w.opName(op))
		}
	})
	c := &World{opts: options{Options: Options{CNames: true}}}
	for call, name := range goCalls {
		if name != "" && Call(call) != callBcast && Call(call) != callAllReduce { // C has none of these
			require.Contains(t, c.callNames()[call], "shmem_", name)
		}
	}
}

// The end of a PE is an error with the call's name.
func TestOperationsOnADeadPENameTheCallOfC(t *testing.T) {
	ready := make(chan struct{})
	openEach(t, 2, "mem:cdead", Options{CNames: true, Strict: true}, func(w *World) {
		ctx := context.Background()
		o := zeros(t, w, 1)
		if w.PE() == 1 {
			<-ready
			w.abandon()
			return
		}
		close(ready)
		var dead *DeadError
		require.ErrorAs(t, never(ctx, w), &dead)
		w.ctx.FetchAdd(o, 0, 8, 1, 1)
		var op *OpError
		require.ErrorAs(t, w.ctx.Err(), &op)
		require.Equal(t, "shmem_atomic_fetch_add", op.Op)
		require.True(t, errors.As(op, &dead))
		require.Error(t, w.Close(ctx))
	})
}
