package tun

import (
	"encoding/binary"
	"errors"
	"net/netip"
)

// Headers of IP, in bytes, and numbers of protocols.
const (
	ipv4Header  = 20
	ipv6Header  = 40
	protocolTCP = 6
	protocolUDP = 17
)

// Fields and values of a virtio header, as linux/virtio_net.h has them.
const (
	needsCsum = 1 // flags: the checksum is to be made
	dataValid = 2 // flags: it was verified

	gsoNone  = 0
	gsoTCPv4 = 1
	gsoTCPv6 = 4
	gsoUDP   = 5
	gsoECN   = 0x80 // with one of TCP
)

// packet is the part of an IP packet that sdp-tun needs.
type packet struct {
	src, dst netip.Addr
	v6       bool
	protocol byte // 0 of a fragment other than the first
	header   int  // bytes of IP before that protocol, without the extensions of IPv6
	ports    []byte
}

var errPacket = errors.New("malformed packet")

// parsePacket parses an IP packet. Ports are nil where it has none.
func parsePacket(b []byte) (p packet, err error) {
	if len(b) < ipv4Header {
		return p, errPacket
	}
	fragment := false
	switch b[0] >> 4 {
	case 4:
		p.header = int(b[0]&15) * 4
		total := int(binary.BigEndian.Uint16(b[2:]))
		if p.header < ipv4Header || p.header > total || total > len(b) {
			return p, errPacket
		}
		fragment = binary.BigEndian.Uint16(b[6:])&0x1fff != 0
		p.protocol = b[9]
		p.src, p.dst = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
	case 6:
		if len(b) < ipv6Header || ipv6Header+int(binary.BigEndian.Uint16(b[4:])) > len(b) {
			return p, errPacket
		}
		p.v6, p.header, p.protocol = true, ipv6Header, b[6]
		p.src, p.dst = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
	default:
		return p, errPacket
	}
	if fragment {
		p.protocol = 0
	}
	if (p.protocol == protocolTCP || p.protocol == protocolUDP) && len(b) >= p.header+4 {
		p.ports = b[p.header : p.header+4]
	}
	return p, nil
}

// checkVirtio reports whether a virtio header fits its packet: it asks for nothing that the packet
// cannot be, and points to nothing outside.
func checkVirtio(h, b []byte, p packet) bool {
	flags, gso := h[0], h[1]
	size := binary.LittleEndian.Uint16(h[4:])
	start, offset := int(binary.LittleEndian.Uint16(h[6:])), int(binary.LittleEndian.Uint16(h[8:]))
	if flags&^(needsCsum|dataValid) != 0 {
		return false
	}
	if flags&needsCsum != 0 && (start < p.header || start+offset+2 > len(b)) {
		return false
	}
	protocol := byte(protocolTCP)
	switch gso {
	case gsoNone:
		return true
	case gsoTCPv4, gsoTCPv4 | gsoECN:
		if p.v6 {
			return false
		}
	case gsoTCPv6, gsoTCPv6 | gsoECN:
		if !p.v6 {
			return false
		}
	case gsoUDP:
		protocol = protocolUDP
	default:
		return false
	}
	// In IPv6 there may be extensions between. The kernel parses those.
	return flags&needsCsum != 0 && size > 0 && (p.protocol == protocol || p.v6)
}

// linkLocal reports whether a packet stays between two neighbours, as those do by which IPv6 organizes a link.
func (p packet) linkLocal() bool {
	return (p.src.IsLinkLocalUnicast() || p.src == netip.IPv6Unspecified()) && (p.dst.IsLinkLocalUnicast() || p.dst.IsLinkLocalMulticast())
}
