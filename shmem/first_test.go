package shmem

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// run runs body on n PEs within this process, and closes them.
func run(t testing.TB, n int, fabric string, opts []Option, body func(w *World)) {
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
			body(w)
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestPutGetAndAtomics(t *testing.T) {
	for _, mode := range []string{"mapped", "strict"} {
		for n := 1; n <= 4; n++ {
			t.Run(fmt.Sprint(mode, n), func(t *testing.T) {
				var opts []Option
				if mode == "strict" {
					opts = append(opts, Strict())
				}
				run(t, n, "mem:shmem"+t.Name()[len(t.Name())-7:], opts, func(w *World) {
					ctx := context.Background()
					c := w.Ctx()
					s, err := Alloc[int64](w, 100)
					require.NoError(t, err)
					sum, err := AllocZeroed[int32](w, 1)
					require.NoError(t, err)
					right := (w.PE() + 1) % n
					src := make([]int64, 99)
					for i := range src {
						src[i] = int64(w.PE()*1000 + i)
					}
					Put(c, s.From(1), src, right)
					for pe := range n {
						AtomicAdd(c, sum, 0, int32(w.PE()+1), pe)
					}
					require.NoError(t, w.Team().Barrier(ctx))
					left := (w.PE() + n - 1) % n
					require.Equal(t, int64(left*1000+98), s.Local()[99])
					got := make([]int64, 99)
					Get(c, got, s.From(1), right)
					require.Equal(t, src, got)
					require.Equal(t, int32(n*(n+1)/2), AtomicFetch(c, sum, 0, left))
					P(c, s, 0, int64(-1-w.PE()), right)
					require.NoError(t, WaitUntil(ctx, s, 0, Eq, int64(-1-left)))
					require.NoError(t, w.Team().Barrier(ctx))
				})
			})
		}
	}
}
