package tunnel

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/ntbnet/ntbnet/internal/frame"
	"github.com/ntbnet/ntbnet/internal/testing/wiredoc"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/stretchr/testify/require"
)

func TestAnEntryIsLaidOutAsDocumented(t *testing.T) {
	w := entryWord(entryPublish, 0x11223344, 0x556677)
	want := map[string]uint64{"offset": 0x11223344, "length": 0x556677, "kind": uint64(entryPublish)}
	rows := wiredoc.Table(t, "Frames", "bits")
	require.Len(t, rows, len(want))
	for _, row := range rows {
		first, last := row.Bits(t, "bits")
		require.Equal(t, want[row["name"]], w<<(63-last)>>(63-last+first), row["name"])
	}
	kinds := map[string]entryKind{"data": entryData, "store": entryStore, "publish": entryPublish}
	rows = wiredoc.Table(t, "Frames", "stores")
	require.Len(t, rows, len(kinds))
	for _, row := range rows {
		number, name, _ := strings.Cut(row["kind"], " ")
		row["kind"] = number
		require.Equal(t, int(kinds[name]), row.Number(t, "kind"), name)
	}
}

// An entry is that of the example, and is stored.
func TestAnEntryIsThatOfTheExample(t *testing.T) {
	_, wire := wiredoc.Vector(t, "frame")
	wire = wire[frame.HeaderBytes:]
	w := wiredoc.Little(wire[:entryHeader])
	kind, off, n := entryKind(w>>56), int(uint32(w)), int(w>>32&0xffffff)
	word := wiredoc.Little(wire[entryHeader : entryHeader+n])
	body := binary.LittleEndian.AppendUint64(nil, entryWord(kind, off, n))
	body = binary.LittleEndian.AppendUint64(body, word)
	require.Equal(t, wire, body)
	in := ntb.AlignedBytes(256)
	memory := sinkMemory{in: in, win: ntb.MappedWindow(in, ntb.Cacheable), published: func(int) {}}
	aligned := ntb.AlignedBytes(len(body))
	copy(aligned, wire)
	require.True(t, memory.apply(aligned))
	require.EqualValues(t, word, ntb.Load32(in, off))
}
