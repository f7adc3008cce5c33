//go:build !linux

package proxy

import (
	"errors"
	"math"
	"net"
	"net/netip"
	"os"
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

// isDown returns false, since this system does not report it. A reset that the
// other direction got may appear as an end of file.
func isDown(net.Conn) bool { return false }

// moved returns 0, since this system does not say.
func moved(*net.TCPConn) int64 { return 0 }

// connectAhead leaves all to package net.
func connectAhead(string, string, syscall.RawConn) error { return nil }

// rawSocket returns nil, since this system does not report whether data has
// arrived.
func rawSocket(net.Conn) syscall.RawConn { return nil }

// tryOnce is never called here.
func (r *reader) tryOnce(uintptr) (done bool) { return true }

// tryOnce is never called here.
func (w *writer) tryOnce(uintptr) (done bool) { return true }

// descriptorLimit returns a number that is not reached.
func descriptorLimit() int { return math.MaxInt32 }

// isListener returns false: no sockets are passed here.
func isListener(*os.File) bool { return false }
