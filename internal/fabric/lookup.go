package fabric

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
)

// LookupHost finds a host of the fabric by name. It asks the name server if necessary. If the fabric has no
// such host, the error wraps EHOSTUNREACH.
func (f *Fabric) LookupHost(ctx context.Context, name string) (host int, err error) {
	return f.net.spec.lookupHost(ctx, name, f.net.nodes())
}

// LookupHost is [Fabric.LookupHost] for a process that does not join the fabric. own reports whether the host is
// this one. Where the number of nodes is not known, it is taken to be the largest.
func (s *Spec) LookupHost(ctx context.Context, name string) (own bool, err error) {
	one := s.numbered()
	nodes := one.Nodes
	if one.member() {
		nodes = maxNodes
	}
	host, err := one.lookupHost(ctx, name, nodes)
	return host == one.Node, err
}

func (s *Spec) lookupHost(ctx context.Context, name string, nodes int) (host int, err error) {
	if host, ok := s.findHost(name, nodes); ok {
		return host, nil
	}
	if net.ParseIP(name) == nil && (!strings.HasPrefix(name, "node") || strings.Contains(name, ".")) {
		ips, _ := net.DefaultResolver.LookupHost(ctx, name)
		if slices.ContainsFunc(ips, s.isLocal) {
			return s.Node, nil
		}
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
	}
	return 0, fmt.Errorf("no node %q in this fabric, which has %s: %w", name, s.hostNames(nodes), syscall.EHOSTUNREACH)
}

// findHost finds a host of the fabric by a name that isLocal accepts. In a fabric
// of several hosts it also accepts the name or number of a node, such as "node3" or
// "3", and the names and addresses that the spec gives to nodes.
func (s *Spec) findHost(name string, nodes int) (host int, ok bool) {
	if s.isLocal(name) {
		return s.Node, true
	}
	if host, ok = s.findNode(name, nodes); ok {
		return host, true
	}
	host, ok = s.Names[plainAddress(strings.TrimSuffix(strings.ToLower(name), "."))]
	return host, ok
}

// FindNode finds a host of the fabric by what only a fabric knows: the name of a node, or,
// in a fabric of several hosts, its number, or an address whose zone is its name, as
// NodeAddr returns. It does not find a name that is also a name of this machine.
func (f *Fabric) FindNode(name string) (host int, ok bool) {
	return f.net.spec.findNode(name, f.net.nodes())
}

func (s *Spec) findNode(name string, nodes int) (host int, ok bool) {
	name = strings.TrimSuffix(strings.ToLower(name), ".")
	node := name
	if !s.hosts() {
		host = s.Node
		ok = name == nodeName(host)
	} else {
		if _, zone, ok := strings.Cut(name, "%"); ok && strings.HasPrefix(zone, "node") {
			node = zone
		}
		host, ok = parseNode(node)
		ok = ok && host <= nodes
	}
	if !ok {
		return 0, false
	}
	if own, err := os.Hostname(); err == nil && strings.EqualFold(own, name) {
		return 0, false
	}
	return host, true
}

// isLocal reports, without asking a name server, whether host means this host: an
// empty name, localhost, this host's name or number, a loopback address or another
// address of this machine.
func (s *Spec) isLocal(host string) bool {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if host == "" || host == "localhost" || host == nodeName(s.Node) {
		return true
	}
	if name, err := os.Hostname(); err == nil && strings.EqualFold(host, name) {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && isLocalIP(ip)
}

func isLocalIP(ip net.IP) bool {
	if ip.IsLoopback() || ip.IsUnspecified() {
		return true
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.Equal(ip) {
			return true
		}
	}
	return false
}

// HostName returns the name of a host in addresses. In a fabric of one host it is
// localhost.
func (f *Fabric) HostName(host int) string {
	if !f.net.several() {
		return "localhost"
	}
	return nodeName(host)
}

// hostNames returns a list of the hosts, for messages.
func (s *Spec) hostNames(nodes int) string {
	if !s.hosts() {
		return "this host alone"
	}
	return nodeName(1) + " to " + nodeName(nodes)
}
