package mplite

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/ntbnet/ntbnet/shmem"
)

// modes are the ways by which PEs reach each other.
var modes = map[string][]shmem.Option{"mapped": nil, "strict": {shmem.Strict()}}

// run runs body on n PEs within this process.
func run(t testing.TB, n int, mode, fabric string, o Options, body func(c *Comm)) {
	t.Helper()
	var wg sync.WaitGroup
	for pe := range n {
		wg.Go(func() {
			opts := append([]shmem.Option{shmem.PE(pe, n, t.Name()), shmem.Fabric(fabric), shmem.HeapLimit(32 << 20)}, modes[mode]...)
			w, err := shmem.Open(context.Background(), opts...)
			if err != nil {
				t.Error(err)
				return
			}
			ended := false
			defer func() {
				if !ended { // the test has failed; others must not wait for this PE
					w.GlobalExit(1)
				}
				if err := w.Close(); ended && err != nil {
					t.Error(err)
				}
			}()
			c, err := Open(context.Background(), w, o)
			if err != nil {
				t.Error(err)
				return
			}
			body(c)
			if err := c.Close(context.Background()); err != nil {
				t.Error(err)
				return
			}
			ended = true
		})
	}
	wg.Wait()
}

// each runs body on PEs of one process, for some numbers of them, in both modes.
func each(t *testing.T, sizes []int, o Options, body func(t *testing.T, c *Comm)) {
	for mode := range modes {
		for _, n := range sizes {
			t.Run(fmt.Sprintf("%s/%d", mode, n), func(t *testing.T) {
				run(t, n, mode, fmt.Sprintf("mem:mplite-%s-%d", mode, n), o, func(c *Comm) { body(t, c) })
			})
		}
	}
}

// fill is the contents of a message.
func fill(b []byte, seed int) {
	for i := range b {
		b[i] = byte(seed + i*7 + i>>8)
	}
}

func filled(n, seed int) []byte {
	b := make([]byte, n)
	fill(b, seed)
	return b
}

// symmetric is symmetric memory of this PE. It is collective, and not given back.
func symmetric(c *Comm, n int) ([]byte, error) {
	s, err := shmem.Alloc[byte](c.w, n)
	return s.Local(), err
}
