package shmem

import (
	"context"
	"sync"
	"testing"
)

// run runs body on n PEs within this process, and closes them.
func run(t testing.TB, n int, fabric string, opts []Option, body func(w *World)) {
	t.Helper()
	openEach(t, n, fabric, opts, func(w *World) {
		body(w)
		if err := w.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// openEach runs body on n PEs within this process. body closes them.
func openEach(t testing.TB, n int, fabric string, opts []Option, body func(w *World)) {
	t.Helper()
	var wg sync.WaitGroup
	for pe := range n {
		wg.Go(func() {
			o := append([]Option{PE(pe, n, t.Name()), Fabric(fabric), HeapLimit(16 << 20)}, opts...)
			w, err := Open(context.Background(), o...)
			if err != nil {
				t.Error(err)
				return
			}
			ended := false
			defer func() {
				if !ended { // the test has failed; others must not wait for this PE
					gone, cancel := context.WithCancel(context.Background())
					cancel()
					_ = w.Close(gone)
				}
			}()
			body(w)
			ended = true
		})
	}
	wg.Wait()
}
