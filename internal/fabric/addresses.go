package fabric

import (
	"context"
	"net/netip"
	"slices"

	"github.com/ntbnet/ntbnet/internal/spec"
)

// NodeOf returns the node that has an address, as the spec says.
func (f *Fabric) NodeOf(a netip.Addr) (node int, ok bool) { return f.spec.Names.NodeOf(a) }

// HasNames reports whether the spec gives names or addresses to nodes.
func (f *Fabric) HasNames() bool { return len(f.spec.Names) > 0 }

// OwnAddr returns an address that the spec gives to this node: the preferred one if that is one of them,
// or else the first of the family of other.
func (f *Fabric) OwnAddr(preferred, other netip.Addr) (netip.Addr, bool) {
	own := f.spec.Names.Addresses(f.Host())
	if slices.Contains(own, preferred) {
		return preferred, true
	}
	i := slices.IndexFunc(own, func(a netip.Addr) bool { return a.Is4() == other.Unmap().Is4() })
	if i < 0 {
		return netip.Addr{}, false
	}
	return own[i], true
}

// Strict reports whether a dial of network "tcp" to an address that the spec gives to a node must not go
// on by TCP.
func (f *Fabric) Strict() bool { return f.spec.Strict }

// LookupHost finds a host of the fabric by name. It asks the name server if necessary. If the fabric has no
// such host, the error wraps EHOSTUNREACH.
func (f *Fabric) LookupHost(ctx context.Context, name string) (host int, err error) {
	return f.spec.Lookup(ctx, name, f.nodes())
}

// FindNode finds a host of the fabric by what only a fabric knows: the name of a node, or,
// in a fabric of several hosts, its number, or an address whose zone is its name, as
// NodeAddr returns. It does not find a name that is also a name of this machine.
func (f *Fabric) FindNode(name string) (host int, ok bool) {
	return f.spec.FindNode(name, f.nodes())
}

// HostName returns the name of a host in addresses. In a fabric of one host it is
// localhost.
func (f *Fabric) HostName(host int) string {
	if !f.several() {
		return "localhost"
	}
	return spec.NodeName(host)
}

// NodeAddr returns the address that stands for a host where addresses are those of TCP.
// In a fabric of one host it is loopback. Otherwise it is a link-local address whose
// zone is the host's name.
func (f *Fabric) NodeAddr(host int) netip.Addr {
	if !f.several() {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	a := [16]byte{0: 0xfe, 1: 0x80, 14: byte(host >> 8), 15: byte(host)}
	return netip.AddrFrom16(a).WithZone(spec.NodeName(host))
}
