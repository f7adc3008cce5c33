package ntbfault_test

import (
	"testing"

	"github.com/ntbnet/ntbnet/internal/testing/ntbattach"
	"github.com/ntbnet/ntbnet/internal/testing/ntbfault"
	"github.com/ntbnet/ntbnet/internal/testing/ntbtest"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/stretchr/testify/require"
)

// A device whose window is write-combining keeps every promise of a device, because a
// published word leaves at once and behind what was stored before it.
func TestAWriteCombiningDeviceConforms(t *testing.T) {
	for seed := range uint64(2) {
		ntbtest.Run(t, func(*testing.T) (a, b ntb.Device) {
			a, b = ntbmem.Pair(16 << 10)
			return ntbfault.Combine(a, 2*seed, 0), ntbfault.Combine(b, 2*seed+1, 0)
		})
	}
}

func TestWriteCombiningSessions(t *testing.T) {
	ntbtest.RunAttachments(t, func(*testing.T) (a, b ntb.Attachment) {
		return ntbattach.Ends(func() (a, b ntb.Device) {
			a, b = ntbmem.Pair(4 << 10)
			return ntbfault.Combine(a, 1, 0), ntbfault.Combine(b, 2, 0)
		})
	})
}

// Without a flush nothing leaves, and payload may come behind what followed it.
func TestUnflushedStoresStayOrLeaveInAnyOrder(t *testing.T) {
	overtaken := 0
	for seed := range uint64(50) {
		a, b := ntbmem.Pair(4 << 10)
		d := ntbfault.Combine(a, seed, 0)
		out, in := d.Outbound(), b.Inbound()
		left := 0
		for i := range 4 {
			out.Store64(512*i, 1)
		}
		for i := range 4 {
			left += int(ntb.Load64(in, 512*i))
		}
		require.Less(t, left, 4)
		if ntb.Load64(in, 512*3) == 1 && ntb.Load64(in, 0) == 0 {
			overtaken++
		}
		out.Publish64(2048, 1)
		for i := range 5 {
			require.EqualValues(t, 1, ntb.Load64(in, 512*i))
		}
		require.NoError(t, d.Close())
		require.NoError(t, b.Close())
	}
	require.Positive(t, overtaken)
}

// A publish whose flushes are left out stays, and what was stored before it may be behind it.
func TestAMissingFlushKeepsAWordBackOrLetsItOvertake(t *testing.T) {
	kept, overtook := 0, 0
	for seed := range uint64(200) {
		a, b := ntbmem.Pair(4 << 10)
		d := ntbfault.Combine(a, seed, 0.5)
		out, in := d.Outbound(), b.Inbound()
		out.Store64(512, 1)
		out.Publish64(0, 1)
		switch word, before := ntb.Load64(in, 0), ntb.Load64(in, 512); {
		case word == 0:
			kept++
		case before == 0:
			overtook++
		}
		d.RingDoorbell(0) // the store to a register empties the buffers
		require.EqualValues(t, 1, ntb.Load64(in, 0))
		require.NoError(t, d.Close())
		require.NoError(t, b.Close())
	}
	require.Positive(t, kept)
	require.Positive(t, overtook)
}
