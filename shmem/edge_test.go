package shmem

import (
	"context"
	"math"
	"testing"

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
	_, err = Alloc[byte](context.Background(), w, w.HeapLimit())
	require.NoError(t, err, "all is free, in one piece")
	require.NoError(t, w.Close(context.Background()))
}

func TestANilTeamSaysSo(t *testing.T) {
	var team *Team
	require.PanicsWithValue(t, "shmem: collective call of a nil Team", func() { _ = team.Barrier(context.Background()) })
	require.PanicsWithValue(t, "shmem: context of a nil Team", func() { team.NewCtx() })
	require.Equal(t, TeamConfig{}, team.Config())
}

// The memory that the package needs itself comes on top of the heap's size.
func TestTheWholeHeapIsForObjects(t *testing.T) {
	each(t, []int{1, 3}, func(t *testing.T, w *World) {
		s, err := Alloc[byte](context.Background(), w, w.HeapLimit())
		require.NoError(t, err)
		_, err = Alloc[byte](context.Background(), w, 1)
		require.ErrorIs(t, err, ErrHeapFull)
		require.NoError(t, Free(context.Background(), s))
	})
}
