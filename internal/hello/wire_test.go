package hello

import (
	"testing"

	"github.com/ntbnet/ntbnet/internal/wiredoc"
	"github.com/stretchr/testify/require"
)

// little is a little-endian number of up to 8 bytes.
func little(b []byte) (v uint64) {
	for i, c := range b {
		v |= uint64(c) << (8 * i)
	}
	return v
}

func TestMessagesAreLaidOutAsDocumented(t *testing.T) {
	tcp := TCP{
		Cookie: 0x0102030405060708, Namespace: 0x1112131415161718, SourceZone: 0x21222324, DestinationZone: 0x31323334,
		Source: [16]byte{7: 1}, Destination: [16]byte{7: 2},
	}
	// Of what has more than 8 bytes, the first 8: of an end they are slot and generation.
	ends := uint64(end.Slot) | uint64(end.Gen)<<32
	other := End{Slot: 0x41424344, Gen: 0x51525354, Offset: 0x6162636465666768, Size: 0x71727374}
	others := uint64(other.Slot) | uint64(other.Gen)<<32
	for heading, m := range map[string]struct {
		wire []byte
		want map[string]uint64
	}{
		"end": {end.append(nil), map[string]uint64{
			"slot": uint64(end.Slot), "generation": uint64(end.Gen), "offset": end.Offset, "size": uint64(end.Size),
		}},
		"Hello": {(&Hello{Version: Version, Network: OverTCP, From: 0xc001, To: 8080, End: end, TCP: tcp}).Marshal(), map[string]uint64{
			"type": typeHello, "version": Version, "network": uint64(OverTCP), "from": 0xc001, "to": 8080, "end": ends,
			"cookie": tcp.Cookie, "namespace": tcp.Namespace, "source": 1 << 56, "destination": 2 << 56,
			"source zone": uint64(tcp.SourceZone), "destination zone": uint64(tcp.DestinationZone),
		}},
		"HelloAck": {(&HelloAck{Slot: end.Slot, Gen: end.Gen, End: other}).Marshal(), map[string]uint64{
			"type": typeAck, "slot": uint64(end.Slot), "generation": uint64(end.Gen), "end": others,
		}},
		"Refuse": {(&Refuse{Version: Version, Slot: end.Slot, Gen: end.Gen, Reason: Elsewhere, Process: 0x0102}).Marshal(), map[string]uint64{
			"type": typeRefuse, "version": Version, "slot": uint64(end.Slot), "generation": uint64(end.Gen),
			"reason": uint64(Elsewhere), "process": 0x0102,
		}},
	} {
		at := 0
		for _, row := range wiredoc.Table(t, heading, "offset") {
			require.Equal(t, at, row.Number(t, "offset"), "%s %s: the layout has no gaps", heading, row["name"])
			n := row.Number(t, "bytes")
			v, ok := m.want[row["name"]]
			require.True(t, ok || row["name"] == "zero", "%s: the code has no field %q", heading, row["name"])
			require.Equal(t, v, little(m.wire[at:at+min(n, 8)]), "%s %s", heading, row["name"])
			delete(m.want, row["name"])
			at += n
		}
		require.Equal(t, len(m.wire), at, heading)
		require.Empty(t, m.want, "%s: fields that are not documented", heading)
	}
}

func TestReasonsAreThoseDocumented(t *testing.T) {
	rows := wiredoc.Table(t, "Opening: Hello, HelloAck, Refuse", "reason")
	require.Len(t, rows, int(lastReason))
	for i, row := range rows {
		require.Equal(t, i+1, row.Number(t, "reason"))
	}
}
