package job

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/onesided"
	"github.com/ntbnet/ntbnet/internal/symheap"
	"github.com/stretchr/testify/require"
)

// run runs body on n PEs within this process, and closes them.
func run(t testing.TB, n int, fabric string, o Options, body func(w *World)) {
	t.Helper()
	openEach(t, n, fabric, o, func(w *World) {
		body(w)
		if err := w.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// openEach runs body on n PEs within this process. body closes them.
func openEach(t testing.TB, n int, fabric string, o Options, body func(w *World)) {
	t.Helper()
	o.Given, o.N, o.Job, o.Fabric, o.Timeout = true, n, t.Name(), fabric, 2*time.Minute
	if o.Heap == 0 {
		o.Heap = 16 << 20
	}
	var wg sync.WaitGroup
	for pe := range n {
		o := o
		o.PE = pe
		wg.Go(func() {
			w, err := Open(context.Background(), o)
			if err != nil {
				t.Error(err)
				return
			}
			ended := false
			defer func() {
				if !ended { // the test has failed; others must not wait for this PE
					w.abandon()
				}
			}()
			body(w)
			ended = true
		})
	}
	wg.Wait()
}

// barrier is the barrier of all PEs.
func barrier(t require.TestingT, w *World) { require.NoError(t, w.team.Barrier(context.Background())) }

// zeros allocates an object of n words.
func zeros(t require.TestingT, w *World, n int) onesided.Object {
	off, err := w.AllocZeroed(context.Background(), uint64(8*n))
	require.NoError(t, err)
	return onesided.Object{Space: w.space, Off: off, N: n}
}

// never waits for what no PE stores.
func never(ctx context.Context, w *World) error {
	o := onesided.Object{Space: w.space, Off: symheap.Shared, N: 1}
	_, err := o.WaitUntil(ctx, 0, onesided.Condition{Size: 8, V: 1 << 63})
	return err
}

// each runs body on PEs of one process, for some numbers of them, mapped and by requests.
func each(t *testing.T, sizes []int, body func(t *testing.T, w *World)) {
	for mode, o := range map[string]Options{"mapped": {}, "strict": {Strict: true}} {
		for _, n := range sizes {
			t.Run(fmt.Sprintf("%s/%d", mode, n), func(t *testing.T) {
				run(t, n, fmt.Sprintf("mem:job-%s-%d", mode, n), o, func(w *World) { body(t, w) })
			})
		}
	}
}
