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

// LookupHost is [Topology.Lookup] for a process that does not join the fabric. own reports whether the host is
// this one. Where the number of nodes is not known, it is taken to be the largest.
func (t Topology) LookupHost(ctx context.Context, name string) (own bool, err error) {
	nodes := t.Nodes
	switch {
	case !t.Several():
		t.Node = 1
	case t.IsMember():
		nodes = MaxNodes
	}
	host, err := t.Lookup(ctx, name, nodes)
	return host == t.Node, err
}

// Lookup finds a host of a fabric of that many nodes by a name that isLocal accepts, or
// by one of this host that a name server knows. In a fabric of several hosts it also
// accepts the name or number of a node, such as "node3" or "3", and Names.
func (t Topology) Lookup(ctx context.Context, name string, nodes int) (host int, err error) {
	if t.isLocal(name) {
		return t.Node, nil
	}
	if host, ok := t.FindNode(name, nodes); ok {
		return host, nil
	}
	if host, ok := t.Names[plainAddress(strings.TrimSuffix(strings.ToLower(name), "."))]; ok {
		return host, nil
	}
	if net.ParseIP(name) == nil && (!strings.HasPrefix(name, "node") || strings.Contains(name, ".")) {
		ips, _ := net.DefaultResolver.LookupHost(ctx, name)
		if slices.ContainsFunc(ips, t.isLocal) {
			return t.Node, nil
		}
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
	}
	hosts := "this host alone"
	if t.Several() {
		hosts = NodeName(1) + " to " + NodeName(nodes)
	}
	return 0, fmt.Errorf("no node %q in this fabric, which has %s: %w", name, hosts, syscall.EHOSTUNREACH)
}

// FindNode finds a host by the name or number of a node, unless that is the name of this machine.
func (t Topology) FindNode(name string, nodes int) (host int, ok bool) {
	name = strings.TrimSuffix(strings.ToLower(name), ".")
	node := name
	if !t.Several() {
		host = t.Node
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
func (t Topology) isLocal(host string) bool {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if host == "" || host == "localhost" || host == NodeName(t.Node) {
		return true
	}
	if name, err := os.Hostname(); err == nil && strings.EqualFold(host, name) {
		return true
	}
	ip := net.ParseIP(host)
	if ip == nil || ip.IsLoopback() || ip.IsUnspecified() {
		return ip != nil
	}
	addrs, _ := net.InterfaceAddrs() // none on error
	return slices.ContainsFunc(addrs, func(a net.Addr) bool {
		n, ok := a.(*net.IPNet)
		return ok && n.IP.Equal(ip)
	})
}
