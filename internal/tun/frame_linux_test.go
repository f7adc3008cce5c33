package tun

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHellos(t *testing.T) {
	own := newHello(1500, 5)
	b, err := binary.Append(nil, binary.LittleEndian, own)
	require.NoError(t, err)
	require.Equal(t, "sdp-tun\n\x01\x00\x00\x00\xdc\x05\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00", string(b))
	require.NoError(t, newHello(1500, 0).check(own))
	other, older := own, own
	other.Magic[0], older.Version = 'S', 0
	for _, c := range []struct {
		h    hello
		want string
	}{
		{hello{}, "it is no sdp-tun"},
		{other, "it is no sdp-tun"},
		{older, "it has version 0 of sdp-tun's frames, and this node 1"},
		{newHello(9000, 0), "it has MTU 9000, and this node 1500: give all the same --mtu"},
	} {
		require.EqualError(t, c.h.check(own), c.want)
	}
}

func TestLengthsOfFrames(t *testing.T) {
	for n, ok := range map[uint32]bool{0: true, 1: false, virtioSize - 1: false, virtioSize: true, maxBody: true, maxBody + 1: false, 1 << 31: false, 1<<32 - 1: false} {
		_, err := newCatcher().take(binary.LittleEndian.AppendUint32(nil, n))
		require.Equal(t, ok, err == nil, "%d", n)
	}
}

// cut returns what reaches the kernel of a stream that arrives in pieces.
func cut(stream []byte, size int) (written [][]byte, err error) {
	c := newCatcher()
	var rest []byte
	for piece := range slices.Chunk(stream, size) {
		if rest, err = c.take(slices.Concat(rest, piece)); err != nil {
			break
		}
	}
	return c.written, err
}

// Whatever arrives, in pieces of any size, is cut into the same frames, and nothing reaches the kernel whose
// source or header is not the peer's to send.
func FuzzFrames(f *testing.F) {
	tcp := frameOf(virtio(needsCsum, gsoTCPv4, 50, 20, 16), ipPacket("10.77.0.2", "10.77.0.1", protocolTCP, 1, 2, 100))
	other := frameOf(virtio(0, 0, 0, 0, 0), ipPacket("fd77::3", "fd77::1", protocolUDP, 1, 2, 100))
	f.Add(slices.Concat(tcp, make([]byte, 4), other, tcp[:30]), 7)
	f.Add(binary.LittleEndian.AppendUint32(nil, maxBody), 1)
	f.Add(other, 64)
	f.Fuzz(func(t *testing.T, stream []byte, size int) {
		size = 1 + int(uint(size)%64)
		whole, bad := cut(stream, max(len(stream), 1))
		pieces, badToo := cut(stream, size)
		require.Equal(t, whole, pieces)
		require.Equal(t, bad, badToo)

		if bad != nil {
			require.ErrorIs(t, bad, errFrame)
		}
		for _, b := range whole {
			requireAllowed(t, b)
		}
	})
}

// requireAllowed checks what goes to the kernel by other code than the receiver's.
func requireAllowed(t testing.TB, b []byte) {
	t.Helper()
	ip := b[virtioSize:]
	var src netip.Addr
	switch ip[0] >> 4 {
	case 4:
		src, _ = netip.AddrFromSlice(ip[12:16])
	case 6:
		src, _ = netip.AddrFromSlice(ip[8:24])
	}
	local := src.Is6() && (src.IsLinkLocalUnicast() || src.IsUnspecified()) && (ip[24] == 0xfe || ip[24] == 0xff && ip[25]&15 == 2)
	ok := local
	for _, p := range allowed {
		ok = ok || p.Contains(src)
	}
	require.True(t, ok, "source %v", src)
	require.Contains(t, []byte{0, 1, 4, 5, 0x81, 0x84}, b[1])
	if b[0]&needsCsum != 0 {
		require.LessOrEqual(t, int(binary.LittleEndian.Uint16(b[6:]))+int(binary.LittleEndian.Uint16(b[8:]))+2, len(ip))
	}
}
