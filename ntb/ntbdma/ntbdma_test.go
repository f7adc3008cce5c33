package ntbdma

import (
	"bytes"
	"testing"

	"github.com/ntbnet/ntbnet/internal/leak"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/ntbnet/ntbnet/ntb/ntbtest"
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
	src := bytes.Repeat([]byte("12345678"), 100)
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
	require.True(t, d.DMA(0).Start(0, []byte("x"), func(error) { <-release }))
	n := 0
	for d.DMA(0).Start(0, []byte("x"), func(error) {}) {
		n++
	}
	require.LessOrEqual(t, n, depth+1)
	close(release)
}

func TestSessions(t *testing.T) {
	around := Around(Options{Channels: 2})
	ntbtest.RunAttachments(t, func(*testing.T) (a, b ntb.Attachment) {
		return ntbmem.Attach(func() (a, b ntb.Device) { return around(ntbmem.Pair(4 << 10)) })
	})
}

func TestConformance(t *testing.T) {
	ntbtest.Run(t, func(t *testing.T) (a, b ntb.Device) {
		a, b = ntbmem.Pair(1 << 20)
		return Wrap(a, Options{Channels: 2}), Wrap(b, Options{Channels: 2})
	})
}
