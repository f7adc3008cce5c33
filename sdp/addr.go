package sdp

import (
	"context"
	"net"
	"strconv"
)

// Network is the name of this transport, for Dial, Listen and Addr.
const Network = "sdp"

// Networks returns the names of the networks that Dial and Listen serve. Others they leave to package net.
func Networks() []string { return []string{Network, "tcp", "tcp4", "tcp6"} }

// Addr is the address of one endpoint of a connection, or of a listener.
type Addr struct {
	Host string // "localhost" for this host; such as "node3" in a fabric of several hosts
	Port int    // 1 to 65535
}

// Network returns "sdp".
func (a *Addr) Network() string { return Network }

// String returns "host:port", which net.SplitHostPort splits and Dial takes.
func (a *Addr) String() string {
	if a == nil {
		return "<nil>"
	}
	return net.JoinHostPort(a.Host, strconv.Itoa(a.Port))
}

// hostName returns the name of a host in addresses.
func (f *Fabric) hostName(host int) string { return f.stack.fabric.HostName(host) }

// thisHost returns the name of this host in addresses.
func (f *Fabric) thisHost() string { return f.hostName(f.stack.fabric.Host()) }

// splitAddress splits "host:port". The port is a number or the name of a TCP
// service. Errors are those of package net.
func splitAddress(ctx context.Context, address string) (host string, port int, err error) {
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, err
	}
	port, err = net.DefaultResolver.LookupPort(ctx, "tcp", service)
	return host, port, err
}
