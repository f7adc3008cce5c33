package tun

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// netlink is a socket by which the kernel's devices, addresses and routes are changed.
type netlink struct {
	fd  int
	seq uint32
}

func openNetlink() (*netlink, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("netlink: %w", err)
	}
	return &netlink{fd: fd}, nil
}

func (n *netlink) Close() error { return unix.Close(n.fd) }

// request sends a request, and waits until the kernel has carried it out.
func (n *netlink) request(kind, flags uint16, body []byte) error {
	n.seq++
	order := binary.NativeEndian
	m := order.AppendUint32(nil, uint32(unix.NLMSG_HDRLEN+len(body)))
	m = order.AppendUint16(m, kind)
	m = order.AppendUint16(m, flags|unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	m = order.AppendUint32(m, n.seq)
	m = order.AppendUint32(m, 0)
	m = append(m, body...)
	if err := unix.Sendto(n.fd, m, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 8192)
	for {
		k, _, err := unix.Recvfrom(n.fd, answer, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		if k < unix.NLMSG_HDRLEN+4 || order.Uint16(answer[4:]) != unix.NLMSG_ERROR || order.Uint32(answer[8:]) != n.seq {
			continue
		}
		if errno := -int32(order.Uint32(answer[unix.NLMSG_HDRLEN:])); errno != 0 {
			return unix.Errno(errno)
		}
		return nil
	}
}

// attribute appends an attribute.
func attribute(b []byte, kind uint16, value []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(4+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, value...)
	return append(b, make([]byte, -len(value)&3)...)
}

func word(v int) []byte { return binary.NativeEndian.AppendUint32(nil, uint32(v)) }

// linkMessage returns the fixed part of a message about a device.
func linkMessage(index int, flags, change uint32) []byte {
	b := append(make([]byte, 4), word(index)...)
	b = binary.NativeEndian.AppendUint32(b, flags)
	return binary.NativeEndian.AppendUint32(b, change)
}

// up sets MTU and queue of a device, and has it up.
func (n *netlink) up(index, mtu int) error {
	b := linkMessage(index, unix.IFF_UP, unix.IFF_UP)
	b = attribute(b, unix.IFLA_MTU, word(mtu))
	b = attribute(b, unix.IFLA_TXQLEN, word(ringPackets))
	b = attribute(b, unix.IFLA_GSO_MAX_SIZE, word(maxMTU))
	return n.request(unix.RTM_NEWLINK, 0, b)
}

func family(a netip.Addr) byte {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// address gives a device an address, and says which one is at its other end.
func (n *netlink) address(index int, own, peer netip.Addr) error {
	b := []byte{family(own), byte(own.BitLen()), unix.IFA_F_NODAD, unix.RT_SCOPE_UNIVERSE}
	b = append(b, word(index)...)
	b = attribute(b, unix.IFA_LOCAL, own.AsSlice())
	b = attribute(b, unix.IFA_ADDRESS, peer.AsSlice())
	return n.request(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, b)
}

// lastMetric is that of routes which count where no other one does.
const lastMetric = 1 << 30

// route leads a prefix to a device, or, with index 0, nowhere: the kernel refuses packets to what has no better route.
func (n *netlink) route(index int, p netip.Prefix) error {
	return n.request(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, routeMessage(index, p))
}

// removeRoute undoes route. A route that is not there is no error.
func (n *netlink) removeRoute(index int, p netip.Prefix) error {
	err := n.request(unix.RTM_DELROUTE, 0, routeMessage(index, p))
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

func routeMessage(index int, p netip.Prefix) []byte {
	kind, scope := byte(unix.RTN_UNICAST), byte(unix.RT_SCOPE_LINK)
	if index == 0 {
		kind, scope = unix.RTN_UNREACHABLE, unix.RT_SCOPE_UNIVERSE
	}
	if !p.Addr().Is4() {
		scope = unix.RT_SCOPE_UNIVERSE
	}
	b := []byte{family(p.Addr()), byte(p.Bits()), 0, 0, unix.RT_TABLE_MAIN, unix.RTPROT_STATIC, scope, kind, 0, 0, 0, 0}
	b = attribute(b, unix.RTA_DST, p.Addr().AsSlice())
	if index == 0 {
		return attribute(b, unix.RTA_PRIORITY, word(lastMetric))
	}
	return attribute(b, unix.RTA_OIF, word(index))
}
