package proxy

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"

	"github.com/ntbnet/ntbnet/internal/unixsock"
)

// Networks of an [Endpoint].
const (
	networkTCP  = "tcp"
	networkUnix = "unix"
	networkSDP  = "sdp"
)

// Endpoint is one side of a [Map].
type Endpoint struct {
	// Network is "tcp", "sdp" or "unix".
	Network string
	// Address is "host:port" for tcp and sdp, and a path for unix: absolute,
	// relative, or "@name" for an abstract name on Linux.
	Address string
}

// String returns the form that [ParseMap] parses, such as "tcp://host:port".
func (e Endpoint) String() string { return e.Network + "://" + e.Address }

// Map says where to listen, and where the connections go.
type Map struct {
	Listen, Target Endpoint
}

// String returns the form that [ParseMap] parses, "LISTEN=TARGET".
func (m Map) String() string { return m.Listen.String() + "=" + m.Target.String() }

// targetStart finds the "=" of LISTEN=TARGET. A path may contain others.
var targetStart = regexp.MustCompile(`=[A-Za-z][A-Za-z0-9+.-]*://`)

// ParseMap parses "LISTEN=TARGET". Each side is tcp://host:port, sdp://host:port,
// unix:///path or unix://relative/path. Port 0 is allowed on the left, where it
// picks a free one. Host names are not looked up. The error is one line that says
// what to do. [Map.String] returns accepted text unchanged.
func ParseMap(s string) (Map, error) {
	m, err := parseMap(s)
	if err != nil {
		return Map{}, fmt.Errorf("map %q: %w", s, err)
	}
	return m, nil
}

func parseMap(s string) (Map, error) {
	at := targetStart.FindAllStringIndex(s, 2)
	switch {
	case len(at) > 1:
		return Map{}, errors.New(`more than one "=SCHEME://"; give one --map for each pair`)
	case len(at) == 0 && strings.Contains(s, "="):
		return Map{}, errors.New("the target, right of the =, must begin with tcp://, sdp:// or unix://")
	case len(at) == 0:
		return Map{}, errors.New("must be LISTEN=TARGET, as in tcp://127.0.0.1:6379=sdp://localhost:7000")
	}
	eq := at[0][0]
	listen, err := parseEndpoint(s[:eq], 0)
	if err != nil {
		return Map{}, fmt.Errorf("left side: %w", err)
	}
	target, err := parseEndpoint(s[eq+1:], 1)
	if err != nil {
		return Map{}, fmt.Errorf("right side: %w", err)
	}
	if listen == target {
		return Map{}, errors.New("the two sides are the same, so it would forward to itself")
	}
	return Map{listen, target}, nil
}

// parseEndpoint parses one side. minPort is 0 where port 0 may pick a free one.
func parseEndpoint(s string, minPort int) (Endpoint, error) {
	network, address, ok := strings.Cut(s, "://")
	if !ok {
		return Endpoint{}, fmt.Errorf("%q must begin with tcp://, sdp:// or unix://", s)
	}
	var err error
	switch network {
	case networkTCP, networkSDP:
		err = checkHostPort(address, minPort)
	case networkUnix:
		err = checkPath(address)
	default:
		err = fmt.Errorf("unknown scheme %q; use tcp://, sdp:// or unix://", network+"://")
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
