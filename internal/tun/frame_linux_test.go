package tun

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHellos(t *testing.T) {
	h := hello{helloVersion, 1500, offloadCsum | offloadUSO}
	got, err := decodeHello(h.encode())
	require.NoError(t, err)
	require.Equal(t, h, got)
	for _, c := range []struct {
		b    []byte
		want string
	}{
		{nil, "it is no sdp-tun"},
		{h.encode()[1:], "it is no sdp-tun"},
		{bytes.Repeat([]byte("GET "), helloSize/4), "it is no sdp-tun"},
		{hello{9, 1500, 0}.encode(), "it has version 9 of sdp-tun's frames, and this one 1"},
	} {
		_, err := decodeHello(c.b)
		require.EqualError(t, err, c.want)
	}
}

func TestLengthsOfFrames(t *testing.T) {
	for n, ok := range map[uint32]bool{0: true, 1: false, virtioSize - 1: false, virtioSize: true, maxBody: true, maxBody + 1: false, 1 << 31: false, 1<<32 - 1: false} {
		b := binary.LittleEndian.AppendUint32(nil, n)
		for _, cut := range []int{0, 1, 3, 4} { // also where the length comes in two parts
			var f frames
			_, _, _, err := f.next(b[:cut])
			if err == nil && cut < 4 {
				_, _, _, err = f.next(b[cut:])
			}
			require.Equal(t, ok, err == nil, "%d, cut at %d", n, cut)
		}
	}
}

// cut returns the bodies of a stream that arrives in pieces.
func cut(stream []byte, size int) (bodies [][]byte, err error) {
	var f frames
	for piece := range slices.Chunk(stream, size) {
		for len(piece) > 0 {
			body, rest, whole, err := f.next(piece)
			if err != nil {
				return bodies, err
			}
			if piece = rest; whole {
				bodies = append(bodies, append([]byte{}, body...))
			}
		}
	}
	return bodies, nil
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

		c := newCatcher()
		if err := c.take(stream); err != nil {
			require.ErrorIs(t, err, errFrame)
		}
		for _, b := range c.written {
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
