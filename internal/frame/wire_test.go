package frame

import (
	"encoding/binary"
	"maps"
	"slices"
	"testing"

	"github.com/ntbnet/ntbnet/internal/testing/wiredoc"
	"github.com/stretchr/testify/require"
)

func TestAFrameIsLaidOutAsDocumented(t *testing.T) {
	const hop = 0x11223344
	f := Header{
		Kind: Data, Hops: 0x0203, Src: 0x10000001, Dst: 0x20000002, To: 0x30000003, From: 0x40000004,
		Epoch: 0x50000005, Seq: 0x60000006, Ack: 0x70000007, Length: 0x80000008, States: 0x90000009,
		Arg: 0xa000000a, Ask: 0xb000000b,
	}
	want := map[string]uint64{
		"hop number": hop, "kind": uint64(Data), "version": Version, "hops": 0x0203,
		"source": 0x10000001, "destination": 0x20000002, "to": 0x30000003, "from": 0x40000004,
		"epoch": 0x50000005, "number": 0x60000006, "acknowledgement": 0x70000007, "length": 0x80000008,
		"states": 0x90000009, "argument": 0xa000000a, "ask": 0xb000000b, "zero": 0,
	}
	var slot [HeaderBytes]byte
	f.Encode(&slot)
	binary.LittleEndian.PutUint64(slot[:], f.First(hop))

	at := 0
	for _, row := range wiredoc.Table(t, "Frames", "offset") {
		require.Equal(t, at, row.Number(t, "offset"), "%s: the layout has no gaps", row["name"])
		if row["name"] == "body" {
			continue
		}
		v, ok := want[row["name"]]
		require.True(t, ok, "the code has no field %q", row["name"])
		delete(want, row["name"])
		n := row.Number(t, "bytes")
		require.Equal(t, v, wiredoc.Little(slot[at:at+n]), row["name"])
		at += n
	}
	require.Equal(t, HeaderBytes, at)
	require.Empty(t, slices.Collect(maps.Keys(want)), "fields that are not documented")
}

func TestFramesAreOfTheKindsDocumented(t *testing.T) {
	names := map[string]Kind{
		"data": Data, "ack": Ack, "open": Open, "accept": Accept,
		"close": Close, "reset": Reset, "link state": LinkState,
	}
	rows := wiredoc.Table(t, "Frames", "uses")
	require.Len(t, rows, len(names))
	for _, row := range rows {
		require.Equal(t, int(names[row["name"]]), row.Number(t, "kind"), row["name"])
	}
}
