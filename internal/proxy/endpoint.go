package proxy

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/ntbnet/ntbnet/internal/shm/unixsock"
)

// Networks of an [Endpoint].
const (
	networkTCP  = "tcp"
	networkUnix = "unix"
	networkSDP  = "sdp"
	networkBoth = "tcp+sdp" // of listeners alone
)

// Endpoint is one side of a [Map].
type Endpoint struct {
	// Network is "tcp", "sdp" or "unix", and "tcp+sdp" of a listener for both.
	Network string
	// Address is "host:port" for tcp and sdp, of TCP alone for both, and a path for unix: absolute,
	// relative, or "@name" for an abstract name on Linux.
	Address string
}

// String returns the form that [ParseMap] parses, such as "tcp://host:port".
func (e Endpoint) String() string { return e.Network + "://" + e.Address }

// networks returns what it listens on.
func (e Endpoint) networks() []string {
	if e.Network == networkBoth {
		return []string{networkTCP, networkSDP}
	}
	return []string{e.Network}
}

// has reports whether it listens on a network, perhaps among others.
func (e Endpoint) has(network string) bool { return slices.Contains(e.networks(), network) }

// half returns where it listens on one of its networks. TCP has the address; SDP has the port at its one address.
func (e Endpoint) half(network string) Endpoint {
	if e.Network != networkBoth || network == networkTCP {
		return Endpoint{network, e.Address}
	}
	return Endpoint{network, e.Address[strings.LastIndex(e.Address, ":"):]}
}

// picks reports whether the system picks the port of a listener.
func (e Endpoint) picks() bool { return e.Network != networkUnix && strings.HasSuffix(e.Address, ":0") }

// parseEndpoint parses one side. minPort is 0 where port 0 may pick a free one.
func parseEndpoint(s string, minPort int) (Endpoint, error) {
	network, address, ok := strings.Cut(s, "://")
	if !ok {
		return Endpoint{}, fmt.Errorf("%q must begin with tcp://, sdp:// or unix://", s)
	}
	var err error
	switch network {
	case networkTCP, networkSDP, networkBoth:
		err = checkHostPort(address, minPort)
	case networkUnix:
		err = checkPath(address)
	default:
		err = fmt.Errorf("unknown scheme %q; use tcp://, sdp://, tcp+sdp:// or unix://", network+"://")
	}
	if err != nil {
		return Endpoint{}, err
	}
	return Endpoint{network, address}, nil
}

func checkHostPort(address string, minPort int) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%q must be host:port, with an IPv6 address in brackets", address)
	}
	if strings.ContainsFunc(host, notInHost) {
		return fmt.Errorf("%q is not the name or address of a host", host)
	}
	// Only digits are allowed. Atoi alone would accept "+80".
	n, err := strconv.Atoi(port)
	if err != nil || strings.Trim(port, "0123456789") != "" || n < minPort || n > 65535 {
		return fmt.Errorf("%q is not a port; use a number from %d to 65535", port, minPort)
	}
	return nil
}

// notInHost reports whether no name or address contains r. It catches mistakes like
// tcp://user@host:1 or tcp://host/path:1. It does not validate names.
func notInHost(r rune) bool {
	return r <= ' ' || r == 0x7f || strings.ContainsRune(`/\?#@=,;"'`, r)
}

func checkPath(path string) error {
	switch {
	case path == "" || path == "@":
		return errors.New("the path is missing; write unix:///run/my.sock or unix://my.sock")
	case strings.ContainsRune(path, 0):
		return errors.New("the path has a zero byte in it")
	}
	return unixsock.CheckPath(path)
}
