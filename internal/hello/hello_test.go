package hello

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

var endpoint = Endpoint{Slot: 0x01020304, Gen: 0x05060708, Offset: 0x1112131415161718, Size: 0x21222324}

var wire = map[string]struct {
	msg  interface{ Marshal() []byte }
	want []byte
}{
	"hello": {
		&Hello{Version: Version, From: 0xc001, To: 8080, Endpoint: endpoint},
		[]byte{1, 8, 0x01, 0xc0, 0x90, 0x1f, 0, 0, 4, 3, 2, 1, 8, 7, 6, 5, 0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 0x24, 0x23, 0x22, 0x21},
	},
	"hello, tcp": {
		&Hello{Version: Version, Network: OverTCP, From: 0xc001, To: 8080, Endpoint: endpoint, TCP: TCP{
			Cookie: 0x0102030405060708, Namespace: 0x1112131415161718,
			Source: [16]byte{0: 0xfe, 15: 1}, Destination: [16]byte{0: 0xfe, 15: 2},
			SourceZone: 3, DestinationZone: 0x01020304,
		}},
		append([]byte{
			1, 8, 0x01, 0xc0, 0x90, 0x1f, 1, 0, 4, 3, 2, 1, 8, 7, 6, 5, 0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 0x24, 0x23, 0x22, 0x21,
			0, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1, 0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11,
		},
			0xfe, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,
			0xfe, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2,
			3, 0, 0, 0, 4, 3, 2, 1),
	},
	"refuse, address": {
		&Refuse{Version: Version, Slot: 3, Gen: 9, Reason: AddressTaken},
		[]byte{3, 8, 0, 0, 3, 0, 0, 0, 9, 0, 0, 0, 6, 0, 0, 0},
	},
	"ack": {
		&HelloAck{Slot: 3, Gen: 9, Endpoint: endpoint},
		[]byte{2, 0, 0, 0, 3, 0, 0, 0, 9, 0, 0, 0, 4, 3, 2, 1, 8, 7, 6, 5, 0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 0x24, 0x23, 0x22, 0x21},
	},
	"refuse": {
		&Refuse{Version: Version, Slot: 3, Gen: 9, Reason: BacklogFull},
		[]byte{3, 8, 0, 0, 3, 0, 0, 0, 9, 0, 0, 0, 2, 0, 0, 0},
	},
	"refuse, other process": {
		&Refuse{Version: Version, Slot: 3, Gen: 9, Reason: OtherProcess, Process: 0x0102},
		[]byte{3, 8, 0, 0, 3, 0, 0, 0, 9, 0, 0, 0, 5, 0, 2, 1},
	},
}

func TestWireFormat(t *testing.T) {
	for name, tc := range wire {
		require.Equal(t, tc.want, tc.msg.Marshal(), name)
		got, err := Parse(tc.want)
		require.NoError(t, err, name)
		require.Equal(t, tc.msg, got, name)
	}
}

func TestMalformedMessagesAreRefused(t *testing.T) {
	bad := [][]byte{nil, {}, {0}, {4}, bytes.Repeat([]byte{0xff}, 28), bytes.Repeat([]byte{0}, 28)}
	for _, tc := range wire {
		for n := range tc.want {
			bad = append(bad, tc.want[:n:n])
		}
		bad = append(bad, append(tc.want[:len(tc.want):len(tc.want)], 0))
	}
	noPort := (&Hello{Version: Version, From: 1, To: 0}).Marshal()
	noReason := (&Refuse{Version: Version, Reason: 0}).Marshal()
	badReason := (&Refuse{Version: Version, Reason: lastReason + 1}).Marshal()
	noProcess := (&Refuse{Version: Version, Reason: OtherProcess}).Marshal()
	short := (&Hello{Version: Version, Network: OverTCP, From: 1, To: 1}).Marshal()[:28]
	long := append((&Hello{Version: Version, From: 1, To: 1}).Marshal(), make([]byte, 60)...)
	notZero := (&Hello{Version: Version, Network: OverTCP, From: 1, To: 1}).Marshal()
	notZero[28] = 1
	process := (&Refuse{Version: Version, Reason: NotListening, Process: 1}).Marshal()
	ownVersion := (&Refuse{Version: Version, Reason: BadVersion}).Marshal()
	otherVersion := (&Refuse{Version: Version + 1, Reason: WindowFull}).Marshal()
	noNetwork := (&Hello{Version: Version, Network: OverTCP + 1, From: 1, To: 1}).Marshal()
	for _, b := range append(bad, ownVersion, otherVersion, noNetwork, noPort, noReason, badReason, noProcess, process, short, long, notZero) {
		_, err := Parse(b)
		require.ErrorIs(t, err, ErrMalformed, "% x", b)
	}
}

func TestHelloOfAnotherVersionCanBeRefused(t *testing.T) {
	b := append((&Hello{Version: Version + 1, From: 1, To: 2, Endpoint: endpoint}).Marshal(), "and more"...)
	m, err := Parse(b)
	require.NoError(t, err)
	require.Equal(t, &Hello{Version: Version + 1, Endpoint: Endpoint{Slot: endpoint.Slot, Gen: endpoint.Gen}}, m)
}

func TestRefusalOfAnotherVersionSaysWhich(t *testing.T) {
	want := &Refuse{Version: Version + 1, Slot: 3, Gen: 9, Reason: BadVersion}
	for _, b := range [][]byte{want.Marshal(), want.Marshal()[:14], append(want.Marshal(), "and more"...)} {
		m, err := Parse(b)
		require.NoError(t, err)
		require.Equal(t, want, m)
	}
}

// What parses is what would be sent.
func FuzzParse(f *testing.F) {
	for _, tc := range wire {
		f.Add(tc.want)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Parse(b)
		if err != nil {
			return
		}
		if h, ok := m.(*Hello); ok && h.Version != Version {
			return // read only as far as is needed to refuse it
		}
		if r, ok := m.(*Refuse); ok && r.Version != Version {
			return // and to learn that this side was refused
		}
		if got := m.(interface{ Marshal() []byte }).Marshal(); !bytes.Equal(got, b) {
			t.Fatalf("% x parses as % x", b, got)
		}
	})
}
