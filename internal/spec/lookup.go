package spec

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
)

// LookupHost is [Fabric.LookupHost] for a process that does not join the fabric. own reports whether the host is
// this one. Where the number of nodes is not known, it is taken to be the largest.
func (s *Spec) LookupHost(ctx context.Context, name string) (own bool, err error) {
	one := s.Numbered()
	nodes := one.Nodes
	if one.IsMember() {
		nodes = MaxNodes
	}
	host, err := one.Lookup(ctx, name, nodes)
	return host == one.Node, err
}

func (s *Spec) Lookup(ctx context.Context, name string, nodes int) (host int, err error) {
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
	if host, ok = s.FindNode(name, nodes); ok {
		return host, true
	}
	host, ok = s.Names[plainAddress(strings.TrimSuffix(strings.ToLower(name), "."))]
	return host, ok
}

func (s *Spec) FindNode(name string, nodes int) (host int, ok bool) {
	name = strings.TrimSuffix(strings.ToLower(name), ".")
	node := name
	if !s.Several() {
		host = s.Node
		ok = name == NodeName(host)
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
	if host == "" || host == "localhost" || host == NodeName(s.Node) {
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

// hostNames returns a list of the hosts, for messages.
func (s *Spec) hostNames(nodes int) string {
	if !s.Several() {
		return "this host alone"
	}
	return NodeName(1) + " to " + NodeName(nodes)
}
