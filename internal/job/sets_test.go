package job

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/ntbnet/ntbnet/internal/onesided"
	"github.com/ntbnet/ntbnet/internal/symheap"
	"github.com/stretchr/testify/require"
)

// fill stores words that depend on the PE.
func fill(w *World, o onesided.Object, salt int) {
	for i := range o.N {
		symheap.Store8(w.heap.Base, o.Off+uintptr(8*i), word(w.pe, i, salt))
	}
}

func word(pe, i, salt int) uint64 { return uint64(pe)<<40 | uint64(i)<<20 | uint64(salt) }

// sum is the fold of sums of words.
func sum(acc, v []byte) {
	for i := 0; i < len(acc); i += 8 {
		binary.NativeEndian.PutUint64(acc[i:], binary.NativeEndian.Uint64(acc[i:])+binary.NativeEndian.Uint64(v[i:]))
	}
}

// PEs make calls of active sets that overlap, in one order, and of the team of all between
// them. Those that are in no set of a round do nothing.
func TestCallsOfActiveSets(t *testing.T) {
	const rounds, most = 40, 2000 // words of a block; large calls take other ways than small ones
	each(t, []int{1, 2, 4, 9}, func(t *testing.T, w *World) {
		ctx, n := context.Background(), w.NumPEs()
		seed := uint64(n)
		random := rand.New(rand.NewPCG(seed, 0)) // the same at all PEs
		src, dst := zeros(t, w, most), zeros(t, w, most*n)
		for round := range rounds {
			logStride := random.IntN(3)
			start := random.IntN(n)
			size := 1 + random.IntN((n-1-start)>>logStride+1)
			words, kind, root := []int{1, 5, 400, most}[random.IntN(4)], random.IntN(6), random.IntN(size)
			what := fmt.Sprintf("seed %d, round %d: kind %d of %d words, set %d %d %d", seed, round, kind, words, start, logStride, size)
			pes := set{start, logStride, size}.pes(n)
			require.Len(t, pes, size, what)
			if round%10 == 9 {
				barrier(t, w)
			}
			in := false
			for _, pe := range pes {
				in = in || pe == w.PE()
			}
			if !in {
				continue
			}
			team := w.ActiveSet(start, logStride, size)
			require.Same(t, team, w.ActiveSet(start, logStride, size))
			require.Equal(t, pes, team.PEs(), what)
			require.NoError(t, team.Sync(ctx), what) // src is free
			fill(w, src, round)
			fill(w, dst, -1)
			require.NoError(t, team.Barrier(ctx), what)
			from := onesided.Object{Space: w.space, Off: src.Off, N: words}
			var want func(i int) uint64 // word i of dst
			count := words
			switch kind {
			case 0, 1:
				call := team.Broadcast
				if kind == 1 {
					call = team.BroadcastOthers
				}
				require.NoError(t, call(ctx, dst, from, 8, root), what)
				want = func(i int) uint64 { return word(pes[root], i, round) }
				if kind == 1 && team.MyPE() == root {
					want = func(i int) uint64 { return word(w.PE(), i, -1) }
				}
			case 2:
				require.NoError(t, team.FCollect(ctx, dst, from, 8), what)
				count = words * size
				want = func(i int) uint64 { return word(pes[i/words], i%words, round) }
			case 3:
				require.NoError(t, team.Collect(ctx, dst, from, 8), what)
				count = words * size
				want = func(i int) uint64 { return word(pes[i/words], i%words, round) }
			case 4:
				require.NoError(t, team.Reduce(ctx, SumReduce, dst, from, 8, sum), what)
				want = func(i int) (v uint64) {
					for _, pe := range pes {
						v += word(pe, i, round)
					}
					return v
				}
			case 5:
				from.N = words / size * size
				require.NoError(t, team.AlltoAll(ctx, dst, from, 8), what)
				count = from.N
				each := from.N / size
				want = func(i int) uint64 { return word(pes[i/each], team.MyPE()*each+i%each, round) }
			}
			for i := range count {
				require.Equal(t, want(i), dst.Word(i, 8), "%s, word %d", what, i)
			}
		}
		barrier(t, w)
	})
}

// Active sets work as teams do in all else: calls on ordinary memory, splits, contexts.
func TestAnActiveSetIsATeam(t *testing.T) {
	each(t, []int{5}, func(t *testing.T, w *World) {
		ctx := context.Background()
		if w.PE()%2 == 0 {
			team := w.ActiveSet(0, 1, 3) // 0 2 4
			require.Equal(t, w.PE()/2, team.MyPE())
			require.Equal(t, 4, team.TranslatePE(2, w.Team()))
			buf := make([]byte, 100_000)
			if w.PE() == 2 {
				buf[99_999] = 7
			}
			require.NoError(t, team.Bcast(ctx, buf, 1, 1))
			require.Equal(t, byte(7), buf[99_999])
			ends, err := team.SplitStrided(ctx, 0, 2, 2)
			require.NoError(t, err)
			require.Equal(t, w.PE() == 2, ends == nil)
			if ends != nil {
				require.Equal(t, []int{0, 4}, ends.PEs())
				require.NoError(t, ends.Destroy(ctx))
			}
			require.PanicsWithValue(t, "shmem: the team of all PEs and the shared team cannot be destroyed", func() { _ = team.Destroy(ctx) })
		}
		barrier(t, w)
	})
}

func TestActiveSetsThatAreNonePanic(t *testing.T) {
	run(t, 3, "mem:badsets", Options{}, func(w *World) {
		for _, bad := range [][3]int{{-1, 0, 2}, {0, 0, 0}, {0, 0, 4}, {0, 1, 3}, {0, -1, 2}, {0, 31, 2}, {0, 63, 2}, {0, 1 << 40, 3}, {1, 62, 3}, {3, 0, 1}} {
			require.Panics(t, func() { w.ActiveSet(bad[0], bad[1], bad[2]) }, "%v", bad)
		}
		message := fmt.Sprintf("shmem: active set of 1 PEs from %d on, logarithm of the stride 0, of 3: this is PE %d", (w.PE()+1)%3, w.PE())
		require.PanicsWithValue(t, message, func() { w.ActiveSet((w.PE()+1)%3, 0, 1) })
		require.Equal(t, []int{w.PE()}, w.ActiveSet(w.PE(), 63, 1).PEs(), "without a second PE the stride does not matter")
	})
}

// A call that fails leaves the counts of PEs apart. So no active set can be used any more.
func TestACallOfAnActiveSetThatFailsEndsAll(t *testing.T) {
	run(t, 2, "mem:setfails", Options{}, func(w *World) {
		if w.PE() == 0 {
			ended, cancel := context.WithCancel(context.Background())
			cancel()
			require.ErrorIs(t, w.ActiveSet(0, 0, 2).Sync(ended), context.Canceled)
			require.ErrorIs(t, w.ActiveSet(0, 0, 1).Sync(context.Background()), context.Canceled)
		}
		barrier(t, w)
	})
}
