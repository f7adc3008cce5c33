package shmem

import (
	"context"
	"errors"
	"fmt"
	"github.com/ntbnet/ntbnet/internal/symheap"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func init() {
	bodies["one dies in a barrier"] = oneDies(func(w *World) error { return w.Team().Barrier(context.Background()) })
	bodies["one dies in a wait"] = oneDies(func(w *World) error {
		s := symOf[uint64](w, symheap.Shared, 1)
		return WaitUntil(context.Background(), s, 0, Eq, 1<<63)
	})
}

// oneDies has the last PE end without Close while the others are in a call that
// waits for it. All of them must return its end as an error.
func oneDies(call func(w *World) error) body {
	return func(t require.TestingT, w *World) {
		require.NoError(t, w.Team().Barrier(context.Background()))
		if w.PE() == w.NumPEs()-1 {
			time.Sleep(20 * time.Millisecond) // the others sleep by now
			os.Exit(0)
		}
		begin := time.Now()
		err := call(w)
		var dead *DeadError
		require.ErrorAs(t, err, &dead)
		require.Equal(t, w.NumPEs()-1, dead.PE)
		fmt.Fprintf(os.Stderr, "told after %v\n", time.Since(begin))
		// Later operations fail at once, and record the failure.
		s := symOf[uint64](w, symheap.Shared, 1)
		require.Zero(t, G(w.Ctx(), s, 0, dead.PE))
		var failed *OpError
		require.ErrorAs(t, w.Ctx().Err(), &failed)
		require.Equal(t, dead.PE, failed.PE)
		require.ErrorAs(t, w.Ctx().Quiet(), &failed)
		_, err = TryG(w.Ctx(), s, 0, dead.PE)
		require.True(t, errors.As(err, &dead))
		// The others must hear of that PE's end before this one's.
		time.Sleep(200 * time.Millisecond)
		require.Error(t, w.Close(context.Background()))
		os.Exit(0)
	}
}

func TestADeathIsToldToAll(t *testing.T) {
	for _, name := range []string{"one dies in a barrier", "one dies in a wait"} {
		for mode := range modes {
			t.Run(name+"/"+mode, func(t *testing.T) { processes(t, name, 3, mode, nil) })
		}
		t.Run(name+"/ring", func(t *testing.T) { processes(t, name, 4, "mapped", ringOf(4)) })
	}
}
