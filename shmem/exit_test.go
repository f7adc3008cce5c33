package shmem

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/leak"
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

// GlobalExit ends all processes with its status, even those several hops away. No operation on a PE
// that is mapped fails before that.
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

// A PE that takes no requests, or an operation that waits for it, does not keep
// GlobalExit from ending the others.
func TestGlobalExitWaitsForNobody(t *testing.T) {
	leak.Check(t)
	exited := make(chan struct{})
	ready := make(chan struct{})
	openEach(t, 3, "mem:exit", []Option{Strict()}, func(w *World) {
		ctx := context.Background()
		s, err := Alloc[byte](ctx, w, 15<<20)
		require.NoError(t, err)
		require.NoError(t, w.Team().Sync(ctx))
		switch w.PE() {
		case 0:
			<-ready
			require.NoError(t, w.peers[1].Channel().Exit(7)) // its server now waits for its mu
			put := make(chan struct{})
			go func() {
				defer close(put)
				s.Put(make([]byte, s.Len()), 1) // more than fits on the way
			}()
			time.Sleep(50 * time.Millisecond) // without it the test would check less
			w.GlobalExit(7)
			close(exited)
			<-put
		case 1:
			w.mu.Lock()
			close(ready)
			<-exited
			w.mu.Unlock()
		}
		var dead *DeadError
		require.ErrorAs(t, WaitUntil(context.Background(), symOf[uint64](w, symheap.Shared, 1), 0, Eq, 1<<63), &dead)
		require.Equal(t, 0, dead.PE)
		require.Error(t, w.Close(context.Background()))
	})
}
