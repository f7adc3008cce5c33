//go:build !linux

package inetdiag

import (
	"errors"
	"net/netip"
	"syscall"
)

// Kernel is Linux'.
type Kernel struct{}

// RouteTo returns errors.ErrUnsupported.
func (*Kernel) RouteTo(netip.Addr) (Route, error) { return Route{}, errors.ErrUnsupported }

// Listening returns errors.ErrUnsupported.
func (*Kernel) Listening(netip.AddrPort, int) (Listener, bool, error) {
	return Listener{}, false, errors.ErrUnsupported
}

// ListeningFor returns errors.ErrUnsupported.
func (*Kernel) ListeningFor(uint16, netip.AddrPort, int) (Listener, bool, error) {
	return Listener{}, false, errors.ErrUnsupported
}

// SocketOf returns errors.ErrUnsupported.
func SocketOf(syscall.RawConn) (Socket, error) { return Socket{}, errors.ErrUnsupported }

// Close does nothing.
func (*Kernel) Close() {}
