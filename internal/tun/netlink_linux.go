package tun

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/ntbnet/ntbnet/internal/inetdiag"
)

// netlink is a socket by which the kernel's devices, addresses and routes are changed.
type netlink struct{ inetdiag.Netlink }

// request sends a request. The kernel has carried it out when it answers.
func (n *netlink) request(kind, flags uint16, body []byte) error {
	message := append(inetdiag.NewRequest(kind, flags|unix.NLM_F_ACK, 0), body...)
	_, err := n.Ask(message, make([]byte, 8192), func([]byte) error { return nil })
	return err
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
	b = inetdiag.AppendAttribute(b, unix.IFLA_MTU, word(mtu))
	b = inetdiag.AppendAttribute(b, unix.IFLA_TXQLEN, word(ringPackets))
	b = inetdiag.AppendAttribute(b, unix.IFLA_GSO_MAX_SIZE, word(maxMTU))
	return n.request(unix.RTM_NEWLINK, 0, b)
}

// address gives a device an address, and says which one is at its other end.
func (n *netlink) address(index int, own, peer netip.Addr) error {
	b := []byte{inetdiag.Family(own), byte(own.BitLen()), unix.IFA_F_NODAD, unix.RT_SCOPE_UNIVERSE}
	b = append(b, word(index)...)
	b = inetdiag.AppendAttribute(b, unix.IFA_LOCAL, own.AsSlice())
	b = inetdiag.AppendAttribute(b, unix.IFA_ADDRESS, peer.AsSlice())
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
	b := []byte{inetdiag.Family(p.Addr()), byte(p.Bits()), 0, 0, unix.RT_TABLE_MAIN, unix.RTPROT_STATIC, scope, kind, 0, 0, 0, 0}
	b = inetdiag.AppendAttribute(b, unix.RTA_DST, p.Addr().AsSlice())
	if index == 0 {
		return inetdiag.AppendAttribute(b, unix.RTA_PRIORITY, word(lastMetric))
	}
	return inetdiag.AppendAttribute(b, unix.RTA_OIF, word(index))
}
