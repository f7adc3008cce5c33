//go:build !linux

package proxy

import (
	"errors"
	"net"
	"net/netip"
)

// canRedirect reports whether this system redirects connections.
const canRedirect = false

// originalDestination returns an error.
func originalDestination(*net.TCPConn) (to netip.AddrPort, err error) {
	return to, errors.ErrUnsupported
}
