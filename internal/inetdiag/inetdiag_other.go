//go:build !linux

package inetdiag

import (
	"errors"
	"net/netip"
	"syscall"
)

// RouteTo returns errors.ErrUnsupported.
func RouteTo(netip.Addr) (Route, error) { return Route{}, errors.ErrUnsupported }

// Listening returns errors.ErrUnsupported.
func Listening(netip.AddrPort, int) (Socket, bool, error) {
	return Socket{}, false, errors.ErrUnsupported
}

// SocketOf returns errors.ErrUnsupported.
func SocketOf(syscall.RawConn) (Socket, error) { return Socket{}, errors.ErrUnsupported }
