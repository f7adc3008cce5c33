package job

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/stretchr/testify/require"
)

// Whether a PE has failed or GlobalExit ends the job, its last requests say, which may not have been read
// when an operation on it fails.
func TestAnOperationFailsWhenTheEndOfThePEIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, err := newWorld(t.Context(), options{Options: Options{N: 3, Heap: 1 << 20}})
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
	openEach(t, 3, "mem:exit", Options{Strict: true}, func(w *World) {
		ctx := context.Background()
		const size = 15 << 20
		off, err := w.Alloc(ctx, size, 1)
		require.NoError(t, err)
		require.NoError(t, w.Team().Sync(ctx))
		switch w.PE() {
		case 0:
			<-ready
			require.NoError(t, w.peers[1].Channel().Exit(7)) // its server now waits for its mu
			put := make(chan struct{})
			go func() {
				defer close(put)
				w.ctx.PutBytes(w.Peer(1), off, make([]byte, size)) // more than fits on the way
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
		require.ErrorAs(t, never(ctx, w), &dead)
		if w.PE() == 2 || dead.PE != 2 { // PE 2 ends too, and others may notice that first
			require.Equal(t, 0, dead.PE)
		}
		require.Error(t, w.Close(ctx))
	})
}
