package mplite

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
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
				if err := w.Close(context.Background()); ended && err != nil {
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

// pattern is random data, the same on every PE.
var pattern = func() []byte {
	b := make([]byte, 2<<20)
	rand.NewChaCha8([32]byte{}).Read(b)
	return b
}()

// filled returns a message of n bytes.
func filled(n, seed int) []byte { return bytes.Clone(pattern[seed%1024:][:n]) }

// symmetric allocates symmetric memory. It is collective, and the memory is not
// freed.
func symmetric(c *Comm, n int) ([]byte, error) {
	s, err := shmem.Alloc[byte](context.Background(), c.w, n)
	return s.Local(), err
}
