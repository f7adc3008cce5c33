package shmem

import (
	"context"
	"os"
	"testing"

	"github.com/ntbnet/ntbnet/internal/symheap"
	"github.com/stretchr/testify/require"
)

func init() {
	bodies["global exit from waits"] = func(t require.TestingT, w *World) {
		ctx := context.Background()
		require.NoError(t, w.Team().Barrier(ctx))
		if w.PE() == 0 {
			w.GlobalExit(7)
		}
		err := WaitUntil(ctx, symOf[uint64](w, symheap.Shared, 1), 0, Eq, 1<<63)
		require.NoError(t, err)
		os.Exit(1)
	}
	bodies["global exit from puts"] = func(t require.TestingT, w *World) {
		ctx := context.Background()
		s, err := Alloc[uint64](ctx, w, 1)
		require.NoError(t, err)
		require.NoError(t, w.Team().Barrier(ctx))
		if w.PE() == 0 {
			w.GlobalExit(7)
		}
		for {
			s.P(0, 1, 0)
			require.NoError(t, w.Ctx().Quiet())
		}
	}
}

// GlobalExit ends all processes with its status, even those several hops away. No operation fails
// before that.
func TestGlobalExitEndsAllProcesses(t *testing.T) {
	for name, fabric := range map[string]func(string, int) string{"one host": nil, "ring": ringOf(5)} {
		for _, from := range []string{"waits", "puts"} {
			t.Run(name+", "+from, func(t *testing.T) {
				for pe, cmd := range start(t, "global exit from "+from, 5, "mapped", fabric) {
					_ = cmd.Wait()
					require.Equal(t, 7, cmd.ProcessState.ExitCode(), "PE %d: %s", pe, cmd.Stderr)
				}
			})
		}
	}
}
