package shmem

import (
	"context"
	"os"
	"sync"
	"testing"

	"github.com/ntbnet/ntbnet/internal/leak"
	"github.com/stretchr/testify/require"
)

func init() {
	bodies["global exit"] = func(t require.TestingT, w *World) {
		ctx := context.Background()
		require.NoError(t, w.Team().Barrier(ctx))
		if w.PE() == 0 {
			w.GlobalExit(7)
		}
		err := WaitUntil(ctx, Sym[uint64]{w, firstShared, 1}, 0, Eq, 1<<63)
		require.NoError(t, err)
		os.Exit(1)
	}
}

// GlobalExit ends all processes with its status, even those several hops away.
func TestGlobalExitEndsAllProcesses(t *testing.T) {
	for name, fabric := range map[string]func(string, int) string{"one host": nil, "ring": ringOf(5)} {
		t.Run(name, func(t *testing.T) {
			for pe, cmd := range start(t, "global exit", 5, "mapped", fabric) {
				_ = cmd.Wait()
				require.Equal(t, 7, cmd.ProcessState.ExitCode(), "PE %d: %s", pe, cmd.Stderr)
			}
		})
	}
}

// A PE that takes no requests, or an operation that waits for it, does not keep
// GlobalExit from ending the others.
func TestGlobalExitWaitsForNobody(t *testing.T) {
	leak.Check(t)
	var open sync.WaitGroup // not a barrier, which may fail here while others leave it
	open.Add(3)
	openEach(t, 3, "mem:exit", []Option{Strict()}, func(w *World) {
		open.Done()
		open.Wait()
		if w.PE() == 0 {
			ch := w.peers[1].ch
			ch.mu.Lock() // as an operation under way does
			w.GlobalExit(7)
			ch.mu.Unlock()
		}
		var dead *DeadError
		require.ErrorAs(t, WaitUntil(context.Background(), Sym[uint64]{w, firstShared, 1}, 0, Eq, 1<<63), &dead)
		require.Equal(t, 0, dead.PE)
		require.Error(t, w.Close(context.Background()))
	})
}
