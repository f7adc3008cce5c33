package shmem

import (
	"context"
	"github.com/ntbnet/ntbnet/internal/symheap"
	"testing"
	"unsafe"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/stretchr/testify/require"
)

// alignedTo reports whether memory begins at a multiple of align bytes.
func alignedTo[T Elem](s []T, align int) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(s)))%uintptr(align) == 0
}

func TestAlignedMeansTheAddress(t *testing.T) {
	for _, fabric := range []string{"mem:align", "shm:" + fabrictest.Name(t)} {
		run(t, 3, fabric, nil, func(w *World) {
			for align := 1; align <= 2<<20; align *= 2 {
				s, err := AllocAligned[byte](context.Background(), w, align, 3)
				require.NoError(t, err)
				require.Zero(t, s.Offset()%align)
				for pe := range w.NumPEs() {
					mem, ok := s.Ptr(pe)
					require.True(t, ok)
					require.True(t, alignedTo(mem, align), "at PE %d, %d bytes", pe, align)
				}
				require.True(t, alignedTo(s.Local(), align))
				require.NoError(t, Free(context.Background(), s))
			}
			_, err := AllocAligned[byte](context.Background(), w, 1<<30, 1)
			require.Error(t, err)
			require.NoError(t, w.Team().Sync(context.Background()))
		})
	}
}

func TestTheLargestAlignment(t *testing.T) {
	w, err := Open(context.Background(), PE(0, 1, "x"), HeapLimit(4<<30))
	if err != nil {
		t.Skip("no address space for a heap of 4 GiB: ", err)
	}
	s, err := AllocAligned[byte](context.Background(), w, symheap.MaxAlign, 1)
	require.NoError(t, err)
	require.True(t, alignedTo(s.Local(), symheap.MaxAlign))
	require.NoError(t, w.Close(context.Background()))
}
