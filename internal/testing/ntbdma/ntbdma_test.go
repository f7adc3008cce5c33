package ntbdma

import (
	"bytes"
	"testing"

	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/internal/testing/ntbattach"
	"github.com/ntbnet/ntbnet/internal/testing/ntbtest"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/stretchr/testify/require"
)

func TestCopiesArriveInOrderAndFailAsTold(t *testing.T) {
	leak.Check(t)
	a, b := ntbmem.Pair(1 << 20)
	d := Wrap(a, Options{Channels: 2, FailEvery: 4})
	defer b.Close()
	defer d.Close()
	require.Equal(t, 2, d.Caps().DMAChannels)
	type result struct {
		i   int
		err error
	}
	results := make(chan result, 12)
	src, err := d.DMA(1).Alloc(800)
	require.NoError(t, err)
	copy(src, bytes.Repeat([]byte("12345678"), 100))
	for i := range 12 {
		for !d.DMA(1).Start(i*1000, src, func(err error) { results <- result{i, err} }) {
		}
	}
	for i := range 12 {
		r := <-results
		require.Equal(t, i, r.i)
		got := b.Inbound()[i*1000 : i*1000+800]
		if i%4 == 3 {
			require.ErrorIs(t, r.err, ErrInjected)
			require.False(t, bytes.Equal(got, src))
		} else {
			require.NoError(t, r.err)
			require.True(t, bytes.Equal(got, src))
		}
	}
}

func TestFullQueueIsRefused(t *testing.T) {
	leak.Check(t)
	a, b := ntbmem.Pair(1 << 20)
	d := Wrap(a, Options{Channels: 1})
	defer b.Close()
	defer d.Close()
	release := make(chan struct{})
	src, err := d.DMA(0).Alloc(1)
	require.NoError(t, err)
	require.True(t, d.DMA(0).Start(0, src, func(error) { <-release }))
	n := 0
	for d.DMA(0).Start(0, src, func(error) {}) {
		n++
	}
	require.LessOrEqual(t, n, depth+1)
	close(release)
}

func TestMemoryOfAChannelHasABound(t *testing.T) {
	a, b := ntbmem.Pair(1 << 10)
	d := Wrap(a, Options{Channels: 2})
	defer b.Close()
	defer d.Close()
	_, err := d.DMA(0).Alloc(MaxMemory + 1)
	require.ErrorContains(t, err, "no room for")
	mem, err := d.DMA(0).Alloc(64)
	require.NoError(t, err)
	require.PanicsWithValue(t, "ntbdma: a copy of 64 bytes that are not registered", func() { d.DMA(1).Start(0, mem, func(error) {}) })
	require.PanicsWithValue(t, "ntbdma: Free of 64 bytes that Alloc has not returned", func() { d.DMA(1).Free(mem) })
}

func TestSessions(t *testing.T) {
	around := Around(Options{Channels: 2})
	ntbtest.RunAttachments(t, func(*testing.T) (a, b ntb.Attachment) {
		return ntbattach.Ends(func() (a, b ntb.Device) { return around(ntbmem.Pair(4 << 10)) })
	})
}

func TestConformance(t *testing.T) {
	ntbtest.Run(t, func(t *testing.T) (a, b ntb.Device) {
		a, b = ntbmem.Pair(1 << 20)
		return Wrap(a, Options{Channels: 2}), Wrap(b, Options{Channels: 2})
	})
}
