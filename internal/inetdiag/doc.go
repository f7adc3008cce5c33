// Package inetdiag asks the kernel which TCP socket a connection to an address of this
// machine would reach.
//
// Three questions are answered, each for the network namespace of the calling thread,
// and each by the kernel's own look-up, so that bound addresses, families, wildcards,
// dual stack, bound devices, groups of SO_REUSEPORT and sk_lookup programs count as
// they do for a connection:
//
//   - [RouteTo]: whether an address is this machine's, by NETLINK_ROUTE;
//   - [Listening]: which socket listens there, by NETLINK_SOCK_DIAG;
//   - [SocketOf]: what that socket is called, for one that this process holds.
//
// What changes a packet or a call on its way is not seen: address translation by
// netfilter, and programs of eBPF at connect.
//
// It is Linux' alone. Elsewhere all functions return errors.ErrUnsupported.
package inetdiag

import "net/netip"

// Socket names a TCP socket of this machine, for as long as the system runs.
type Socket struct {
	Cookie    uint64 // SO_COOKIE of the socket in the TCP layer; 0 is none
	Namespace uint64 // SO_NETNS_COOKIE of its network namespace, or what stands for it
}

// Route is how the kernel reaches an address.
type Route struct {
	Local     bool       // the address is this machine's
	Source    netip.Addr // which one a connection comes from, unless it is bound
	Interface int        // the index of that through which it is seen to come
}

// Destination is the address to which the kernel connects if it is told to connect to
// the unspecified one: loopback. Other addresses stay.
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
