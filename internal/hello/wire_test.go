package hello

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/ntbnet/ntbnet/internal/testing/wiredoc"
	"github.com/stretchr/testify/require"
)

func TestMessagesAreLaidOutAsDocumented(t *testing.T) {
	tcp := TCP{
		Cookie: 0x0102030405060708, Namespace: 0x1112131415161718, SourceZone: 0x21222324, DestinationZone: 0x31323334,
		Source: [16]byte{7: 1}, Destination: [16]byte{7: 2},
	}
	// Of what has more than 8 bytes, the first 8: of an endpoint they are slot and generation.
	first := uint64(endpoint.Slot) | uint64(endpoint.Gen)<<32
	other := Endpoint{Slot: 0x41424344, Gen: 0x51525354, Offset: 0x6162636465666768, Size: 0x71727374}
	second := uint64(other.Slot) | uint64(other.Gen)<<32
	for heading, m := range map[string]struct {
		wire []byte
		want map[string]uint64
	}{
		"endpoint": {endpoint.append(nil), map[string]uint64{
			"slot": uint64(endpoint.Slot), "generation": uint64(endpoint.Gen), "offset": endpoint.Offset, "size": uint64(endpoint.Size),
		}},
		"Hello": {(&Hello{Version: Version, Network: OverTCP, From: 0xc001, To: 8080, Endpoint: endpoint, TCP: tcp}).Marshal(), map[string]uint64{
			"type": typeHello, "version": Version, "network": uint64(OverTCP), "from": 0xc001, "to": 8080, "endpoint": first,
			"cookie": tcp.Cookie, "namespace": tcp.Namespace, "source": 1 << 56, "destination": 2 << 56,
			"source zone": uint64(tcp.SourceZone), "destination zone": uint64(tcp.DestinationZone),
		}},
		"HelloAck": {(&HelloAck{Slot: endpoint.Slot, Gen: endpoint.Gen, Endpoint: other}).Marshal(), map[string]uint64{
			"type": typeAck, "slot": uint64(endpoint.Slot), "generation": uint64(endpoint.Gen), "endpoint": second,
		}},
		"Refuse": {(&Refuse{Version: Version, Slot: endpoint.Slot, Gen: endpoint.Gen, Reason: OtherProcess, Process: 0x0102}).Marshal(), map[string]uint64{
			"type": typeRefuse, "version": Version, "slot": uint64(endpoint.Slot), "generation": uint64(endpoint.Gen),
			"reason": uint64(OtherProcess), "process": 0x0102,
		}},
	} {
		at := 0
		for _, row := range wiredoc.Table(t, heading, "offset") {
			require.Equal(t, at, row.Number(t, "offset"), "%s %s: the layout has no gaps", heading, row["name"])
			n := row.Number(t, "bytes")
			v, ok := m.want[row["name"]]
			require.True(t, ok || row["name"] == "zero", "%s: the code has no field %q", heading, row["name"])
			require.Equal(t, v, wiredoc.Little(m.wire[at:at+min(n, 8)]), "%s %s", heading, row["name"])
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

// Each example is decoded to its values, and what it is decoded to is encoded to the example.
func TestMessagesAreThoseOfTheExamples(t *testing.T) {
	values := func(m any) string {
		endpoint := func(e Endpoint) string {
			return fmt.Sprintf("slot=%d generation=%d offset=%d size=%d", e.Slot, e.Gen, e.Offset, e.Size)
		}
		switch m := m.(type) {
		case *Hello:
			s := fmt.Sprintf("from=%d to=%d network=%d %s", m.From, m.To, m.Network, endpoint(m.Endpoint))
			if m.Network == OverTCP {
				s += fmt.Sprintf(" cookie=%d namespace=%d source=%v destination=%v zones=%d,%d", m.TCP.Cookie, m.TCP.Namespace,
					netip.AddrFrom16(m.TCP.Source), netip.AddrFrom16(m.TCP.Destination), m.TCP.SourceZone, m.TCP.DestinationZone)
			}
			return s
		case *HelloAck:
			return fmt.Sprintf("slot=%d generation=%d endpoint: %s", m.Slot, m.Gen, endpoint(m.Endpoint))
		case *Refuse:
			return fmt.Sprintf("version=%d slot=%d generation=%d reason=%d process=%d", m.Version, m.Slot, m.Gen, m.Reason, m.Process)
		}
		return ""
	}
	for _, name := range []string{"Hello", "Hello-tcp", "HelloAck", "Refuse"} {
		want, wire := wiredoc.Vector(t, name)
		m, err := Parse(wire)
		require.NoError(t, err, name)
		require.Equal(t, want, values(m), name)
		require.Equal(t, wire, m.(interface{ Marshal() []byte }).Marshal(), name)
	}
}
