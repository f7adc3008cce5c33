package shmem

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// Unread replies fill the smallest queue, so that the server takes no requests. A PE
// that sends more of them must read first.
func TestSmallRequestsPassUnreadReplies(t *testing.T) {
	run(t, 2, "mem:unread?buffer=4096", []Option{Strict()}, func(w *World) {
		ctx, c := context.Background(), w.Ctx()
		s, err := AllocZeroed[uint64](ctx, w, 1<<14)
		require.NoError(t, err)
		other := 1 - w.PE()
		buf := make([]uint64, 1<<13)
		long := make([]uint64, 100)
		var old uint64
		for range 3 {
			GetNBI(c, buf, s, other)
			GetNBI(c, buf, s, other)
			for i := range 300 {
				P(c, s, i, 7, other)
				AtomicInc(c, s, 1<<13, other)
			}
			GetNBI(c, buf, s, other)
			for i := range 300 {
				Put(c, s.From(i), []uint64{1, 2, 3}, other)
				AtomicFetchAddNBI(c, &old, s, 1<<13, 1, other)
			}
			Put(c, s, long, other)
		}
		require.NoError(t, w.Team().Barrier(ctx))
		require.Equal(t, uint64(3*600), s.Local()[1<<13])
	})
}
