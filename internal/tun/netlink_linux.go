package tun

import (
	"cmp"
	"errors"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// up sets MTU and queue of a device, and has it up.
func (d *device) up(mtu int) error {
	link := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Index: d.index}}
	err := cmp.Or(netlink.LinkSetMTU(link, mtu), netlink.LinkSetTxQLen(link, ringPackets), netlink.LinkSetGSOMaxSize(link, maxMTU))
	if err != nil {
		return err // it stays down
	}
	return netlink.LinkSetUp(link)
}

// address gives a device an address, and says which one is at its other end.
func (d *device) address(own, peer netip.Addr) error {
	a := netlink.Addr{LinkIndex: d.index, IPNet: ipNet(own, own.BitLen()), Peer: ipNet(peer, peer.BitLen()), Flags: unix.IFA_F_NODAD}
	return netlink.AddrReplace(nil, &a)
}

func ipNet(a netip.Addr, bits int) *net.IPNet {
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(bits, a.BitLen())}
}

// lastMetric is that of routes which count where no other one does.
const lastMetric = 1 << 30

// route returns the route that leads a prefix to a device, or, with index 0, nowhere: the kernel refuses packets to what has no better route.
func route(index int, p netip.Prefix) *netlink.Route {
	r := &netlink.Route{LinkIndex: index, Dst: ipNet(p.Addr(), p.Bits()), Protocol: unix.RTPROT_STATIC}
	if index == 0 {
		r.Type, r.Priority = unix.RTN_UNREACHABLE, lastMetric
	} else if p.Addr().Is4() {
		r.Scope = netlink.SCOPE_LINK
	}
	return r
}

// removeRoute removes a route. One that is not there is no error.
func removeRoute(r *netlink.Route) error {
	if err := netlink.RouteDel(r); !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}
