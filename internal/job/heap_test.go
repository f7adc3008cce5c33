package job

import (
	"context"
	"testing"

	"github.com/ntbnet/ntbnet/internal/collective"
	"github.com/ntbnet/ntbnet/internal/onesided"
	"github.com/ntbnet/ntbnet/internal/symheap"
	"github.com/stretchr/testify/require"
)

func TestHeapSizesAsTheSpecificationHasThem(t *testing.T) {
	for text, want := range map[string]int{
		"1m": 1 << 20, "2G": 2 << 30, "1.5g": 3 << 29, " 1048576 ": 1 << 20, "4194304": 4 << 20, "4096k": 4 << 20, "1t": 1 << 40,
		"64k": 64 << 10, "1": 1, "0": 0, ".5k": 512, "5.": 5, "1e6": 1e6,
		"3.1M": 3250586, "0.3k": 308, // rounded up to the next byte
		"20kk": 20 << 10, "16MB": 16 << 20, "1m32": 1 << 20, "1GiB": 1 << 30, "2k bytes": 2 << 10,
	} {
		got, err := parseSize(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "x", "k", "-1g", "2t", "1.0000001t", "1 g", "12x", "1.2.3", "nan", "inf", "0x10", "1e99"} {
		_, err := parseSize(text)
		require.Error(t, err, text)
	}
}

func TestTheEnvironmentSetsTheHeap(t *testing.T) {
	t.Setenv(envDebug, "1")
	one := Options{Given: true, N: 1, Job: "x"}
	for text, want := range map[string]int{"8m": 8 << 20, "3.1M": 3250586, "64k": 64 << 10, "0": 1} {
		t.Setenv(envHeap, text)
		w, err := Open(context.Background(), one)
		require.NoError(t, err)
		require.GreaterOrEqual(t, w.HeapLimit(), want)
		require.Less(t, w.HeapLimit(), want+symheap.PageBytes)
		require.True(t, w.opts.Debug)
		require.NoError(t, w.Close(context.Background()))
	}
	t.Setenv("SMA_SYMMETRIC_SIZE", "lots")
	w, err := Open(context.Background(), one)
	require.NoError(t, err, "the name without SMA_ counts")
	require.NoError(t, w.Close(context.Background()))
	t.Setenv(envHeap, "")
	_, err = Open(context.Background(), one)
	require.EqualError(t, err, "shmem: SMA_SYMMETRIC_SIZE=lots: want bytes up to 1t, such as 65536, 512m or 1.5g")
	t.Setenv(envHeap, "lots")
	_, err = Open(context.Background(), one)
	require.EqualError(t, err, "shmem: SHMEM_SYMMETRIC_SIZE=lots: want bytes up to 1t, such as 65536, 512m or 1.5g")
}

// The memory that the package needs itself comes on top of the heap's size.
func TestTheWholeHeapIsForObjects(t *testing.T) {
	for _, size := range []int{1, 100_000, 1 << 20} {
		w, err := newWorld(t.Context(), options{Options: Options{N: 600, Heap: size}, inProcess: true})
		require.NoError(t, err)
		_, err = w.heap.Alloc(uint64(size), symheap.LineBytes)
		require.NoError(t, err)
		symheap.ForgetGo(w.token)
		w.heap.Close()
	}
}

// An impossible count from another PE causes no read outside of the heap.
func TestCollectReadsNothingOutsideOfTheHeap(t *testing.T) {
	run(t, 2, "mem:collectfar", Options{}, func(w *World) {
		ctx, team := context.Background(), w.Team()
		dst, src := zeros(t, w, 512), zeros(t, w, 512)
		dst.N, src.N = 4096, 100 // bytes
		if w.PE() == 1 {         // claims what it does not have
			for _, lie := range []collective.Words{
				{100, uint64(w.heap.Size - 99)},
				{100, ^uint64(0) - 50},
				{100, 0},
				{^uint64(0), uint64(src.Off)},
			} {
				require.NoError(t, team.engine.Begin())
				require.NoError(t, team.engine.Leave(team.engine.Agree(ctx, lie, func(int, collective.Words) {})))
			}
		} else {
			for range 4 {
				require.ErrorIs(t, team.Collect(ctx, dst, src, 1), ErrMismatch)
			}
		}
		require.NoError(t, team.Sync(ctx))
	})
}

// Objects at offsets are checked: they lie within the objects' part of the heap, aligned.
func TestAnObjectIsWithinTheHeap(t *testing.T) {
	run(t, 1, "mem:at", Options{}, func(w *World) {
		last := w.heap.Size - 4
		for off, want := range map[int]bool{-4: false, 0: false, symheap.Shared: false, w.heap.Objects: true, w.heap.Objects + 1: false,
			last: true, last + 4: false, last + 8: false} {
			o, ok := w.At(off, 1, 4)
			require.Equal(t, want, ok, "offset %d", off)
			if ok {
				require.Equal(t, onesided.Object{Space: w.space, Off: uintptr(off), N: 1}, o)
			}
		}
		_, ok := w.At(last, 2, 4)
		require.False(t, ok)
		_, ok = w.At(last, -1, 4)
		require.False(t, ok)
		_, ok = w.At(w.heap.Objects+8, 1, 16)
		require.True(t, ok, "two halves of 8 bytes")
	})
}
