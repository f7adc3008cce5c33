package shmem

import (
	"context"
	"io"
	"os"
	"testing"
	"testing/synctest"
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

// Whether a PE has failed or GlobalExit ends the job, its last requests say, which may not have been read
// when an operation on it fails.
func TestAnOperationFailsWhenTheEndOfThePEIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, err := newWorld(options{n: 3, heap: 1 << 20}, true)
		require.NoError(t, err)
		failed := make(chan error, 2)
		for pe := 1; pe <= 2; pe++ {
			go func() { failed <- w.opError("put", pe, io.EOF) }()
		}
		synctest.Wait()
		require.Empty(t, failed)
		w.mu.Lock()
		w.lost(1)
		w.lost(1) // it may be said twice
		w.mu.Unlock()
		require.Equal(t, &OpError{"put", 1, io.EOF}, <-failed)
		begin := time.Now()
		require.Equal(t, &OpError{"put", 2, io.EOF}, <-failed, "it lives")
		require.Equal(t, exitLimit, time.Since(begin))
	})
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
