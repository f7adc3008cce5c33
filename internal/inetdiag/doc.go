// Package inetdiag asks the kernel which TCP socket a connection to an address of this
// machine would reach.
//
// It answers three questions, each for the network namespace of the calling thread.
// Each is answered by the kernel's own look-up. So bound addresses, families,
// wildcards, dual stack, bound devices, groups of SO_REUSEPORT and sk_lookup programs
// count as they do for a connection:
//
//   - [Kernel.RouteTo]: whether an address is this machine's, by NETLINK_ROUTE;
//   - [Kernel.Listening]: which socket listens there, by NETLINK_SOCK_DIAG;
//   - [SocketOf]: the identity of that socket, for one that this process holds.
//
// Anything that changes a packet or a call on its way is not seen: address translation
// by netfilter, and eBPF programs at connect.
//
// The netlink socket itself, [Netlink], also serves package tun.
//
// It works on Linux only. On others all functions return errors.ErrUnsupported.
package inetdiag

import "net/netip"

// Socket identifies a TCP socket of this machine, for as long as the system runs.
type Socket struct {
	Cookie    uint64 // SO_COOKIE of the socket in the TCP layer; 0 for none
	Namespace uint64 // SO_NETNS_COOKIE of its network namespace, or a substitute
}

// Listener is a TCP socket that listens.
type Listener struct {
	Socket
	UID int // owner: the user who made it, unless its file was given to another
}

// Route is how the kernel reaches an address.
type Route struct {
	Local     bool       // the address is this machine's
	Source    netip.Addr // source address of a connection that is not bound
	Interface int        // index of the interface through which a connection appears to come
}

// Destination returns the address to which the kernel connects if it is told to
// connect to a. That is loopback for the unspecified address, and a for all others.
func Destination(a netip.Addr) netip.Addr {
	a = a.Unmap()
	switch a {
	case netip.IPv4Unspecified():
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	case netip.IPv6Unspecified():
		return netip.IPv6Loopback()
	}
	return a
}
