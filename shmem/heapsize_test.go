package shmem

import (
	"context"
	"github.com/ntbnet/ntbnet/internal/symheap"
	"testing"

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
	for text, want := range map[string]int{"8m": 8 << 20, "3.1M": 3250586, "64k": 64 << 10, "0": 1} {
		t.Setenv(envHeap, text)
		w, err := Open(context.Background(), PE(0, 1, "x"))
		require.NoError(t, err)
		require.GreaterOrEqual(t, w.HeapLimit(), want)
		require.Less(t, w.HeapLimit(), want+symheap.PageBytes)
		require.True(t, w.opts.debug)
		require.NoError(t, w.Close(context.Background()))
	}
	t.Setenv(envHeap, "lots")
	_, err := Open(context.Background(), PE(0, 1, "x"))
	require.EqualError(t, err, "shmem: SHMEM_SYMMETRIC_SIZE=lots: want bytes up to 1t, such as 65536, 512m or 1.5g")
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
	for _, size := range []int{1, 100_000, 1 << 20} {
		w, err := newWorld(options{pe: 0, n: 600, heap: size, inProcess: true}, true)
		require.NoError(t, err)
		_, err = w.heap.Alloc(uint64(size), symheap.LineBytes)
		require.NoError(t, err)
		symheap.ForgetGo(w.token)
		w.heap.Close()
	}
}
