package shmem

import (
	"context"
	"github.com/ntbnet/ntbnet/internal/symheap"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAnObjectIsFoundByItsMemoryAndItsOffset(t *testing.T) {
	each(t, []int{1, 2}, func(t *testing.T, w *World) {
		s, err := Alloc[int32](context.Background(), w, 100)
		require.NoError(t, err)
		found, ok := Find(w, s.Local()[3:7])
		require.True(t, ok)
		require.Equal(t, s.Slice(3, 7), found)
		at, ok := At[int32](w, s.From(3).Offset(), 4)
		require.True(t, ok)
		require.Equal(t, found, at)

		_, ok = Find(w, make([]int32, 4))
		require.False(t, ok, "other memory")
		_, ok = Find(w, s.Local()[:0])
		require.False(t, ok, "no memory")
		last := w.core.Heap().Size - 4
		for off, want := range map[int]bool{-4: false, 0: false, symheap.Shared: false, s.Offset() + 1: false, last: true, last + 4: false, last + 8: false} {
			_, ok = At[int32](w, off, 1)
			require.Equal(t, want, ok, "offset %d", off)
		}
		_, ok = At[int32](w, last, 2)
		require.False(t, ok)
		_, ok = At[int32](w, last, -1)
		require.False(t, ok)
	})
}
