package ntb_test

import (
	"testing"

	"github.com/ntbnet/ntbnet/internal/testing/recorder"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/stretchr/testify/require"
)

// A publish flushes before and after its word where stores are combined, and only there.
func TestAPublishedWordLeavesAtOnce(t *testing.T) {
	one := []string{"store 100 at 3", "publish64 8 at 128", "publish32 4 at 136", "update64 8 at 144", "update32 4 at 152"}
	for kind, want := range map[ntb.MemoryKind][]string{
		ntb.Cacheable: one,
		ntb.Uncached:  one,
		ntb.WriteCombining: {
			"store 100 at 3",
			"flush", "publish64 8 at 128", "flush",
			"flush", "publish32 4 at 136", "flush",
			"flush", "publish64 8 at 144", "flush",
			"flush", "publish32 4 at 152", "flush",
		},
	} {
		t.Run(kind.String(), func(t *testing.T) {
			var tape recorder.Tape
			w := tape.Window(kind, ntb.MappedWindow(ntb.AlignedBytes(256), kind))
			w.Write(3, make([]byte, 100))
			s := w.Slice(64, 192)
			s.Publish64(64, 1)
			s.Publish32(72, 2)
			s.Update64(80, 3)
			s.Update32(88, 4)
			require.Equal(t, want, tape.Take())
			if kind == ntb.WriteCombining {
				require.Equal(t, kind, s.Kind())
				require.Nil(t, s.Bytes(0, 8))
			}
		})
	}
}
