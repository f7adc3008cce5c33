package shmem

import (
	"context"
	"math"
	"testing"

	"github.com/ntbnet/ntbnet/internal/fabric"
	"github.com/stretchr/testify/require"
)

// With one block the stride is not used, whatever its value.
func TestStridesOfOneBlockDoNotMatter(t *testing.T) {
	each(t, []int{2}, func(t *testing.T, w *World) {
		c, other := w.Ctx(), 1-w.PE()
		s, err := AllocZeroed[uint32](context.Background(), w, 4)
		require.NoError(t, err)
		for i, stride := range []int{5, 1 << 45, math.MaxInt} {
			IPut(c, s, stride, []uint32{uint32(7 + i)}, stride, 1, other)
			var got [1]uint32
			IGet(c, got[:], stride, s, stride, 1, other)
			require.Equal(t, uint32(7+i), got[0])
			require.NoError(t, c.Err())
			require.Panics(t, func() { IPut(c, s, stride, []uint32{1, 2}, 1, 2, other) })
			require.Panics(t, func() { IGet(c, make([]uint32, 2), 1, s, stride, 2, other) })
		}
		require.Panics(t, func() { IBPut(c, s, math.MaxInt, []uint32{1}, math.MaxInt, math.MaxInt, 3, other) })
		require.NoError(t, w.Team().Barrier(context.Background()))
	})
}

func TestFreeTakesWholeObjectsOnly(t *testing.T) {
	w, err := Open(context.Background(), PE(0, 1, "x"), HeapLimit(1<<20))
	require.NoError(t, err)
	s, err := Alloc[int16](context.Background(), w, 10)
	require.NoError(t, err)
	empty, err := Alloc[int16](context.Background(), w, 0)
	require.NoError(t, err)
	for _, part := range []Sym[int16]{s.Slice(0, 9), s.Slice(0, 0), s.From(1), s.Slice(1, 1)} {
		require.Panics(t, func() { _ = Free(context.Background(), part) })
	}
	require.NoError(t, Free(context.Background(), s))
	require.NoError(t, Free(context.Background(), empty))
	require.Panics(t, func() { _ = Free(context.Background(), s) })
	require.Len(t, w.heap.free, 1)
	require.NoError(t, w.Close(context.Background()))
}

// The specification's wait for all elements requires that each has been as it should be,
// not all at the same moment.
func TestWaitUntilAllTakesElementsOneByOne(t *testing.T) {
	each(t, []int{2}, func(t *testing.T, w *World) {
		ctx, c, other := context.Background(), w.Ctx(), 1-w.PE()
		s, err := AllocZeroed[int64](ctx, w, 3)
		require.NoError(t, err)
		if w.PE() == 0 {
			AtomicSet(c, s, 0, 1, other)
			require.NoError(t, WaitUntil(ctx, s, 0, Eq, 5)) // the wait has seen element 0
			AtomicSet(c, s, 0, 2, other)
			require.NoError(t, c.Quiet())
			AtomicSet(c, s, 1, 1, other)
			AtomicSet(c, s, 2, 1, other)
		} else {
			seen := 0
			l := looker[int64]{s: s, op: Eq, v: 1}
			require.NoError(t, w.wait(ctx, func() bool { return l.allFrom(&seen) || seen == 1 }))
			AtomicSet(c, s, 0, 5, other)
			require.NoError(t, w.wait(ctx, func() bool { return l.allFrom(&seen) }))
		}
		require.NoError(t, w.Team().Barrier(ctx))
	})
}

func TestANilTeamSaysSo(t *testing.T) {
	var team *Team
	require.PanicsWithValue(t, "shmem: collective call of a nil Team", func() { _ = team.Barrier(context.Background()) })
	require.PanicsWithValue(t, "shmem: context of a nil Team", func() { team.NewCtx() })
	require.Equal(t, TeamConfig{}, team.Config())
}

// A PE without membarrier tells the others. They then fence after each store.
func TestPEsWithoutMembarrierTellOthers(t *testing.T) {
	var all [2]*World
	for pe := range all {
		w, err := newWorld(options{pe: pe, n: 2, heap: 1 << 20, inProcess: true}, true)
		require.NoError(t, err)
		defer w.heap.close()
		defer forgetGoMemory(w.token)
		w.spec, err = fabric.ParseSpec("mem:x")
		require.NoError(t, err)
		w.self.fence, w.peers[1-pe].fence = pe == 1, pe == 1
		all[pe] = w
	}
	require.NoError(t, all[0].mapPeer(all[0].peers[1], all[1].hello()))
	require.True(t, all[0].peers[1].fence)
	require.NoError(t, all[1].mapPeer(all[1].peers[0], all[0].hello()))
	require.True(t, all[1].peers[0].fence)
	require.False(t, all[0].self.fence)
}
