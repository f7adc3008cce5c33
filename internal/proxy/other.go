//go:build !linux

package proxy

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
)

// canRedirect reports whether this system redirects connections.
const canRedirect = false

// originalDestination returns an error.
func originalDestination(*net.TCPConn) (to netip.AddrPort, err error) {
	return to, errors.ErrUnsupported
}

// arrived returns 0, since this system does not say.
func (r *reader) arrived() int { return 0 }

// hasError returns false: here a reset is found when the connection is used.
func hasError(net.Conn) bool { return false }

// moved returns 0, since this system does not say.
func moved(*net.TCPConn) int64 { return 0 }

// connectAhead leaves all to package net.
func connectAhead(string, string, syscall.RawConn) error { return nil }
