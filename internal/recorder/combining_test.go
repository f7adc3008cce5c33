package recorder_test

import (
	"testing"

	"github.com/ntbnet/ntbnet/internal/recorder"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/ntbnet/ntbnet/ntb/ntbtest"
	"github.com/stretchr/testify/require"
)

// A device whose window is write-combining keeps every promise of a device, because a
// published word leaves at once and behind what was stored before it.
func TestAWriteCombiningDeviceConforms(t *testing.T) {
	for seed := range uint64(2) {
		ntbtest.Run(t, func(*testing.T) (a, b ntb.Device) {
			a, b = ntbmem.Pair(16 << 10)
			return recorder.Combine(a, 2*seed), recorder.Combine(b, 2*seed+1)
		})
	}
}

func TestWriteCombiningSessions(t *testing.T) {
	ntbtest.RunAttachments(t, func(*testing.T) (a, b ntb.Attachment) {
		return ntbmem.Attach(func() (a, b ntb.Device) {
			a, b = ntbmem.Pair(4 << 10)
			return recorder.Combine(a, 1), recorder.Combine(b, 2)
		})
	})
}

// Without a flush nothing leaves, and payload may come behind what followed it.
func TestUnflushedStoresStayOrLeaveInAnyOrder(t *testing.T) {
	overtaken := 0
	for seed := range uint64(50) {
		a, b := ntbmem.Pair(4 << 10)
		d := recorder.Combine(a, seed)
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
