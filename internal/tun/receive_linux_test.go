package tun

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// ipPacket returns a packet of TCP or UDP, of either family.
func ipPacket(src, dst string, protocol byte, sport, dport uint16, payload int) []byte {
	s, d := netip.MustParseAddr(src), netip.MustParseAddr(dst)
	header := ipv4Header
	if s.Is6() {
		header = ipv6Header
	}
	b := make([]byte, header+20+payload)
	if s.Is4() {
		b[0], b[8], b[9] = 0x45, 64, protocol
		binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
		copy(b[12:], s.AsSlice())
		copy(b[16:], d.AsSlice())
	} else {
		b[0], b[6], b[7] = 0x60, protocol, 64
		binary.BigEndian.PutUint16(b[4:], uint16(len(b)-ipv6Header))
		copy(b[8:], s.AsSlice())
		copy(b[24:], d.AsSlice())
	}
	binary.BigEndian.PutUint16(b[header:], sport)
	binary.BigEndian.PutUint16(b[header+2:], dport)
	return b
}

// virtio returns a virtio header.
func virtio(flags, gso byte, size, start, offset uint16) []byte {
	b := []byte{flags, gso, 0, 0}
	for _, v := range []uint16{size, start, offset} {
		b = binary.LittleEndian.AppendUint16(b, v)
	}
	return b
}

// frameOf returns a frame.
func frameOf(header, packet []byte) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(header)+len(packet)))
	return append(append(b, header...), packet...)
}

// allowed are the prefixes of the peer in tests.
var allowed = []netip.Prefix{netip.MustParsePrefix("10.77.0.2/32"), netip.MustParsePrefix("fd77::2/128"), netip.MustParsePrefix("192.168.7.0/24")}

// catcher is a receiver that keeps what it would hand to the kernel.
type catcher struct {
	receiver
	written [][]byte
}

func newCatcher() *catcher {
	c := &catcher{receiver: receiver{sources: allowed, count: &counters{}}}
	c.write = func(b []byte) error {
		c.written = append(c.written, append([]byte(nil), b...))
		return nil
	}
	return c
}

func TestPacketsOfAPeer(t *testing.T) {
	plain := virtio(0, 0, 0, 0, 0)
	tcp4 := ipPacket("10.77.0.2", "10.77.0.1", protocolTCP, 1, 2, 100)
	tcp6 := ipPacket("fd77::2", "fd77::1", protocolTCP, 1, 2, 100)
	udp4 := ipPacket("10.77.0.2", "10.77.0.1", protocolUDP, 1, 2, 100)
	changed := func(b []byte, at int, v byte) []byte {
		b = append([]byte(nil), b...)
		b[at] = v
		return b
	}
	const source, malformed = "source", "malformed"
	for _, c := range []struct {
		name           string
		header, packet []byte
		want           string
	}{
		{"plain", plain, tcp4, ""},
		{"plain, IPv6", plain, tcp6, ""},
		{"what is behind the peer", plain, ipPacket("192.168.7.9", "10.0.0.1", protocolUDP, 1, 2, 0), ""},
		{"a batch of TCP", virtio(needsCsum, gsoTCPv4, 50, 20, 16), tcp4, ""},
		{"a batch of TCP with ECN", virtio(needsCsum, gsoTCPv4|gsoECN, 50, 20, 16), tcp4, ""},
		{"a batch of TCP, IPv6", virtio(needsCsum, gsoTCPv6, 50, 40, 16), tcp6, ""},
		{"a batch of UDP", virtio(needsCsum, gsoUDP, 50, 20, 6), udp4, ""},
		{"a checksum to make", virtio(needsCsum, 0, 0, 20, 6), udp4, ""},
		{"a checksum that was verified", virtio(dataValid, 0, 0, 0, 0), udp4, ""},
		{"between neighbours", plain, ipPacket("fe80::2", "ff02::16", 58, 0, 0, 0), ""},
		{"before there is an address", plain, ipPacket("::", "ff02::16", 58, 0, 0, 0), ""},

		{"another node's", plain, ipPacket("10.77.0.3", "10.77.0.1", protocolTCP, 1, 2, 0), source},
		{"this node's", plain, ipPacket("10.77.0.1", "10.77.0.1", protocolTCP, 1, 2, 0), source},
		{"loopback's", plain, ipPacket("127.0.0.1", "127.0.0.1", protocolTCP, 1, 2, 0), source},
		{"another network's", plain, ipPacket("8.8.8.8", "10.77.0.1", protocolUDP, 1, 2, 0), source},
		{"another node's, IPv6", plain, ipPacket("fd77::3", "fd77::1", protocolTCP, 1, 2, 0), source},
		{"IPv4 within IPv6", plain, ipPacket("::ffff:10.77.0.2", "fd77::1", protocolTCP, 1, 2, 0), source},
		{"between neighbours, and beyond", plain, ipPacket("fe80::2", "fd77::1", 58, 0, 0, 0), source},
		{"no address, and beyond", plain, ipPacket("::", "fd77::1", 58, 0, 0, 0), source},

		{"nothing", plain, nil, malformed},
		{"no IP", plain, changed(tcp4, 0, 0x55), malformed},
		{"a header that is too short", plain, changed(tcp4, 0, 0x44), malformed},
		{"longer than it is", plain, changed(tcp4, 3, 200), malformed},
		{"longer than it is, IPv6", plain, changed(tcp6, 5, 200), malformed},
		{"a batch of the other family", virtio(needsCsum, gsoTCPv6, 50, 20, 16), tcp4, malformed},
		{"a batch of the other family, IPv6", virtio(needsCsum, gsoTCPv4, 50, 40, 16), tcp6, malformed},
		{"a batch of the other protocol", virtio(needsCsum, gsoUDP, 50, 20, 16), tcp4, malformed},
		{"a batch without a size", virtio(needsCsum, gsoTCPv4, 0, 20, 16), tcp4, malformed},
		{"a batch without checksums", virtio(0, gsoTCPv4, 50, 20, 16), tcp4, malformed},
		{"UFO", virtio(needsCsum, 3, 50, 20, 6), udp4, malformed},
		{"a batch of UDP with ECN", virtio(needsCsum, gsoUDP|gsoECN, 50, 20, 6), udp4, malformed},
		{"unknown flags", virtio(4, 0, 0, 0, 0), tcp4, malformed},
		{"a checksum in the header of IP", virtio(needsCsum, 0, 0, 10, 0), tcp4, malformed},
		{"a checksum outside", virtio(needsCsum, 0, 0, 20, uint16(len(tcp4)-21)), tcp4, malformed},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newCatcher()
			rest, err := r.take(frameOf(c.header, c.packet))
			require.NoError(t, err)
			require.Empty(t, rest)
			got := [3]uint64{uint64(len(r.written)), r.count.source.Load(), r.count.malformed.Load()}
			require.Equal(t, map[string][3]uint64{"": {1, 0, 0}, source: {0, 1, 0}, malformed: {0, 0, 1}}[c.want], got)
		})
	}
}
