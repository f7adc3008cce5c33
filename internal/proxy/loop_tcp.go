package proxy

import (
	"context"
	"net"
	"net/netip"
	"strconv"
)

// resolveTCP returns all addresses that a dial of "host:port" may try.
func resolveTCP(ctx context.Context, address string) []netip.AddrPort {
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return nil
	}
	port, err := strconv.ParseUint(service, 10, 16)
	if err != nil {
		return nil
	}
	if host == "" {
		host = "127.0.0.1" // as net.Dial does
	}
	ips, err := net.DefaultResolver.LookupIPAddr(ctx, host) // LookupNetIP drops zones
	if err != nil {
		return nil
	}
	if len(ips) == 1 && ips[0].IP.Equal(net.IPv6unspecified) {
		ips = append(ips, net.IPAddr{IP: net.IPv4zero}) // net.Dial tries it next
	}
	var found []netip.AddrPort
	for _, a := range ips {
		if ip, ok := netip.AddrFromSlice(a.IP); ok {
			found = append(found, netip.AddrPortFrom(canonical(ip.WithZone(a.Zone)), uint16(port)))
		}
	}
	return found
}

// canonical returns the form of a dialled address in which it can be compared. A system
// connects to loopback in place of an unspecified address, IPv4 mapped into IPv6
// becomes IPv4, and a zone becomes a name.
func canonical(ip netip.Addr) netip.Addr {
	ip = ip.Unmap() // removes the zone of an IPv4 address
	switch {
	case ip == netip.IPv4Unspecified():
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	case ip == netip.IPv6Unspecified():
		return netip.IPv6Loopback()
	}
	if index, err := strconv.Atoi(ip.Zone()); err == nil {
		if i, err := net.InterfaceByIndex(index); err == nil {
			return ip.WithZone(i.Name)
		}
	}
	return ip
}

// answers reports whether a dial of target reaches a listener whose Addr is listening.
// Listeners of this package are of network "tcp", so one on [::] answers for IPv4 too.
func answers(listening string, target netip.AddrPort, local func(netip.Addr) bool) bool {
	at, err := netip.ParseAddrPort(listening)
	if err != nil || at.Port() != target.Port() {
		return false
	}
	ip := at.Addr().Unmap()
	if !ip.IsUnspecified() {
		return ip == target.Addr()
	}
	return (ip.Is6() || target.Addr().Is4()) && local(target.Addr())
}

// localAddresses returns a function that reports whether an address is one of this
// machine's: loopback, or the address of an interface.
func localAddresses() func(netip.Addr) bool {
	own := map[netip.Addr]bool{}
	addrs, _ := net.InterfaceAddrs() // without them, only loopback is local
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok {
				own[ip.Unmap()] = true
			}
		}
	}
	return func(ip netip.Addr) bool { return ip.IsLoopback() || own[ip.WithZone("")] }
}
