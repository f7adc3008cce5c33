package perf

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
)

// Networks are the names of the transports, in the order of the report.
var Networks = []string{"sdp", "tcp", "unix"}

// Endpoint is where a server listens: a transport and an address on it.
type Endpoint struct {
	Network string // one of Networks
	Address string // "host:port", or a path for "unix"
}

// String returns the form that ParseEndpoint parses, such as
// "sdp://localhost:7000".
func (e Endpoint) String() string { return e.Network + "://" + e.Address }

// ParseEndpoint parses "sdp://host:port", "tcp://host:port" or "unix:///path". The
// error says what to write instead.
func ParseEndpoint(s string) (Endpoint, error) {
	network, address, ok := strings.Cut(s, "://")
	if !ok {
		return Endpoint{}, fmt.Errorf("%q: write it as sdp://localhost:7000, tcp://127.0.0.1:7000 or unix:///path", s)
	}
	if !slices.Contains(Networks, network) {
		return Endpoint{}, fmt.Errorf("%q: unknown transport %q: use one of %s", s, network, strings.Join(Networks, ", "))
	}
	if network == "unix" {
		if address == "" {
			return Endpoint{}, fmt.Errorf("%q: no path: write it as unix:///path", s)
		}
		return Endpoint{network, address}, nil
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return Endpoint{}, fmt.Errorf("%q: no port: write it as %s://localhost:7000", s, network)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return Endpoint{}, fmt.Errorf("%q: port %q: use a number from 0 to 65535", s, port)
	}
	return Endpoint{network, address}, nil
}
