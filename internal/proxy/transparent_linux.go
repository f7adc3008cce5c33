package proxy

import (
	"encoding/binary"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// canRedirect reports whether this system redirects connections.
const canRedirect = true

// ip6OriginalDestination is IP6T_SO_ORIGINAL_DST of linux/netfilter_ipv6/ip6_tables.h.
const ip6OriginalDestination = 80

// originalDestination returns where a client wanted to go before rules redirected it. Of a connection that they left
// alone it returns the connection's own address or an error.
func originalDestination(c *net.TCPConn) (to netip.AddrPort, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return to, err
	}
	v4 := unmapped(c.LocalAddr()).Addr().Is4()
	failed := raw.Control(func(fd uintptr) { to, err = askDestination(int(fd), v4) })
	if failed != nil {
		return to, failed
	}
	return to, os.NewSyscallError("getsockopt", err)
}

// askDestination asks the kernel. The answer is a sockaddr, for which structs of other options have room.
func askDestination(fd int, v4 bool) (netip.AddrPort, error) {
	if v4 {
		got, err := unix.GetsockoptIPv6Mreq(fd, unix.IPPROTO_IP, unix.SO_ORIGINAL_DST)
		if err != nil {
			return netip.AddrPort{}, err
		}
		in := got.Multiaddr // family, port, address
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(in[4:8])), binary.BigEndian.Uint16(in[2:])), nil
	}
	got, err := unix.GetsockoptIPv6MTUInfo(fd, unix.IPPROTO_IPV6, ip6OriginalDestination)
	if err != nil {
		return netip.AddrPort{}, err
	}
	port := binary.NativeEndian.AppendUint16(nil, got.Addr.Port) // in the order of the network
	return netip.AddrPortFrom(netip.AddrFrom16(got.Addr.Addr), binary.BigEndian.Uint16(port)), nil
}
