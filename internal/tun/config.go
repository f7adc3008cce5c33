package tun

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
)

// Port is the port of the fabric on which each node listens.
const Port = 5077

// Config says which devices a node has. All nodes of a fabric have the same networks and MTU.
type Config struct {
	Self, Nodes int          // this node, from 1 on, and how many there are
	Net4, Net6  netip.Prefix // node n has address n of each; the zero Prefix for none
	Device      string       // the device of the peer that is node n has this name and n behind it
	MTU         int
	Queue       int  // bytes that may wait for a peer
	Addresses   bool // devices, addresses and routes are configured
	Routes      []Route
	Logf        func(format string, args ...any)
}

// Route is a network that is reached through a node.
type Route struct {
	Prefix netip.Prefix
	Node   int
}

// ParseRoute parses PREFIX=NODE.
func ParseRoute(s string) (r Route, err error) {
	prefix, node, ok := strings.Cut(s, "=")
	if !ok {
		return r, fmt.Errorf("--route %q: want PREFIX=NODE, as in 192.168.7.0/24=2", s)
	}
	if r.Prefix, err = ParsePrefix("--route", prefix); err != nil {
		return r, err
	}
	if r.Node, err = strconv.Atoi(strings.TrimPrefix(node, "node")); err != nil {
		return r, fmt.Errorf("--route %q: want the number of a node behind =, as in 192.168.7.0/24=2", s)
	}
	return r, nil
}

// ParsePrefix parses a network. The error names the flag.
func ParsePrefix(flag, s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return p, fmt.Errorf("%s %q: want a network, as in 10.77.0.0/24 or fd77::/64", flag, s)
	}
	if p != p.Masked() {
		return p, fmt.Errorf("%s %q: it has bits beyond its length; want %v", flag, s, p.Masked())
	}
	if p.Addr().Is4In6() {
		return p, fmt.Errorf("%s %q: want an IPv4 network, without ::ffff: before it", flag, s)
	}
	return p, nil
}

// Check returns an error that says what to do.
func (c *Config) Check() error {
	if c.Nodes < 2 {
		return errors.New("the fabric has one node alone: want one with node=I and nodes=N, as in SDP_FABRIC='ring:lab?node=1&nodes=3'")
	}
	if c.MTU < minMTU || c.MTU > maxMTU {
		return fmt.Errorf("--mtu %d: want %d to %d", c.MTU, minMTU, maxMTU)
	}
	if c.Queue < 2*maxFrame || c.Queue > 1<<30 {
		return fmt.Errorf("--queue %d: want %dK to 1G", c.Queue, 2*maxFrame>>10)
	}
	if n := len(c.name(c.Nodes)); c.Device == "" || n > 15 || strings.ContainsAny(c.Device, "/: \t\n%") {
		return fmt.Errorf("--device %q: want the beginning of a name, of 1 to 13 letters", c.Device)
	}
	if c.Addresses && !c.Net4.IsValid() && !c.Net6.IsValid() {
		return errors.New("nodes have no address: give --net4, --net6 or --no-addresses")
	}
	for _, n := range []struct {
		flag string
		net  netip.Prefix
		v4   bool
	}{{"--net4", c.Net4, true}, {"--net6", c.Net6, false}} {
		if n.net.IsValid() && (n.net.Addr().Is4() != n.v4 || !n.net.Contains(addressOf(n.net, c.Nodes+1))) { // one more is the address of a broadcast
			return fmt.Errorf("%s %v: want a network of its family with room for %d nodes", n.flag, n.net, c.Nodes)
		}
	}
	for _, r := range c.Routes {
		if r.Node < 1 || r.Node > c.Nodes || r.Node == c.Self {
			return fmt.Errorf("--route %v=%d: want another node, of 1 to %d", r.Prefix, r.Node, c.Nodes)
		}
	}
	return nil
}

// WriteHosts writes the addresses of all nodes in the form of /etc/hosts.
func (c *Config) WriteHosts(w io.Writer) error {
	var b strings.Builder
	for node := 1; node <= c.Nodes; node++ {
		for _, p := range c.networks() {
			fmt.Fprintf(&b, "%v\tnode%d\n", addressOf(p, node), node)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// name returns the name of the device of a peer.
func (c *Config) name(node int) string { return c.Device + strconv.Itoa(node) }

// networks returns the networks that there are.
func (c *Config) networks() (all []netip.Prefix) {
	for _, p := range []netip.Prefix{c.Net4, c.Net6} {
		if p.IsValid() {
			all = append(all, p)
		}
	}
	return all
}

// sources returns the prefixes from which a peer may send.
func (c *Config) sources(node int) (all []netip.Prefix) {
	for _, p := range c.networks() {
		a := addressOf(p, node)
		all = append(all, netip.PrefixFrom(a, a.BitLen()))
	}
	return append(all, c.routes(node)...)
}

// routes returns what --route leads to a node.
func (c *Config) routes(node int) (all []netip.Prefix) {
	for _, r := range c.Routes {
		if r.Node == node {
			all = append(all, r.Prefix)
		}
	}
	return all
}

// addressOf returns address n of a network.
func addressOf(p netip.Prefix, n int) netip.Addr {
	a := p.Addr()
	for range n {
		a = a.Next()
	}
	return a
}
