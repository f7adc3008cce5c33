package shmem

import (
	"context"
	"github.com/ntbnet/ntbnet/internal/symheap"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/stretchr/testify/require"
)

// A PE whose collective failed cannot take part in the others' Close. For them it has
// ended early, although it has called Close.
func TestACloseThatFailsIsToldToAll(t *testing.T) {
	leak.Check(t)
	for mode, opts := range modes {
		t.Run(mode, func(t *testing.T) {
			openEach(t, 2, "mem:closefails-"+mode, opts, func(w *World) {
				if w.PE() == 0 {
					ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
					defer cancel()
					require.Error(t, w.Team().Barrier(ctx))
					require.ErrorIs(t, w.Close(context.Background()), context.DeadlineExceeded)
					return
				}
				ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
				defer cancel()
				s := symOf[uint64](w, symheap.Shared, 1)
				err := WaitUntil(ctx, s, 0, Eq, 1<<63)
				var dead *DeadError
				require.ErrorAs(t, err, &dead)
				require.Equal(t, 0, dead.PE)
				require.Error(t, w.Close(ctx))
			})
		})
	}
}
