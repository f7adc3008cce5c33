package shmem

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// complexes has all PEs store to one element. Its halves must always be of one
// value.
func complexes(t require.TestingT, w *World) {
	const rounds = 200_000
	ctx := context.Background()
	s, err := AllocZeroed[complex64](ctx, w, 9)
	require.NoError(t, err)
	i := 5 + w.PE()%2*2 // odd elements: none begins at a multiple of 16 bytes
	for _, put := range []func(c *Ctx, i int, v complex64){
		func(c *Ctx, i int, v complex64) { P(c, s, i, v, 0) },
		func(c *Ctx, i int, v complex64) { Put(c, s.From(i), []complex64{v}, 0) },
		func(c *Ctx, i int, v complex64) { IPut(c, s.From(i), 1, []complex64{v}, 1, 1, 0) },
	} {
		var wg sync.WaitGroup
		torn := make(chan complex64, 4)
		look := func(v complex64) {
			if real(v) != imag(v) {
				select {
				case torn <- v:
				default:
				}
			}
		}
		n := rounds
		if mapped, _ := w.Mapped(0); !mapped {
			n = 500
		}
		wg.Go(func() {
			c := NewCtx(w)
			for k := range n {
				v := float32(k)
				put(c, i, complex(v, v))
			}
			require.NoError(t, c.Close())
		})
		wg.Go(func() {
			c := NewCtx(w)
			var one [1]complex64
			for k := range n {
				switch k % 3 {
				case 0:
					look(G(c, s, 5+k%2*2, 0))
				case 1:
					Get(c, one[:], s.From(5+k%2*2), 0)
					look(one[0])
				default:
					IGet(c, one[:], 1, s.From(5+k%2*2), 1, 1, 0)
					look(one[0])
				}
			}
			require.NoError(t, c.Close())
		})
		wg.Wait()
		require.Empty(t, torn, "halves of two values")
		require.NoError(t, w.Team().Barrier(ctx))
	}
}

func init() { bodies["complexes"] = complexes }

func TestAComplexNumberOf8BytesIsStoredAtOnce(t *testing.T) {
	each(t, []int{2, 3}, func(t *testing.T, w *World) { complexes(t, w) })
	for mode := range modes {
		t.Run("processes/"+mode, func(t *testing.T) { processes(t, "complexes", 2, mode, nil) })
	}
}

// A number of 8 bytes that does not begin at a multiple of 8 cannot be stored at
// once.
func TestNoObjectOfComplexNumbersBeginsBetweenWords(t *testing.T) {
	run(t, 1, "mem:complex", nil, func(w *World) {
		s, err := Alloc[float32](context.Background(), w, 8)
		require.NoError(t, err)
		_, ok := At[complex64](w, s.Offset()+4, 1)
		require.False(t, ok)
		_, ok = At[complex64](w, s.Offset()+8, 1)
		require.True(t, ok)
		_, ok = At[complex128](w, s.Offset()+8, 1)
		require.True(t, ok)
	})
}
